/* Checks base/tmpfile: as many temporary files at one time as a queue on many devices needs, each found by its target;
 * a committed one has its name, and nothing remains of others. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/tmpfile.h"
#include "check.h"

enum { MANY = 40 };

static char folder[] = "/tmp/test_tmpfile.XXXXXX";

static int count_files(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    CHECK(d != NULL);
    for (const struct dirent *f; (f = readdir(d)) != NULL;)
        n += strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0;
    (void)closedir(d);
    return n;
}

int main(void)
{
    static spx_tmpfile t[MANY];
    static char target[MANY][64];
    CHECK(mkdtemp(folder) != NULL);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(target[i], sizeof target[i], "%s/%d", folder, i);
        CHECK(spx_tmpfile_open(&t[i], target[i], 0, &e) == SPX_OK);
    }
    CHECK(count_files() == MANY);
    for (int i = 0; i < MANY; i++)
        CHECK(strcmp(spx_tmpfile_shown(t[i].path), target[i]) == 0);
    CHECK(spx_tmpfile_commit(&t[7], &e) == SPX_OK && access(target[7], F_OK) == 0);
    for (int i = 0; i < MANY; i++)
        spx_tmpfile_discard(&t[i]);
    CHECK(count_files() == 1 && unlink(target[7]) == 0 && rmdir(folder) == 0);
    return 0;
}
