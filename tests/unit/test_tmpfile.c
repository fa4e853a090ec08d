/* Checks base/tmpfile: as many temporary files at one time as a queue on many devices needs, each found by its target;
 * a committed one has its name, and nothing remains of others. Opening one again by its `path` gives the same file,
 * whatever has taken its name; names of 255 bytes; what killed processes left is removed, and nothing else. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

/* The name of the only file in the folder that begins with a point. */
static const char *temporary(void)
{
    static char name[256];
    DIR *d = opendir(folder);
    CHECK(d != NULL);
    for (const struct dirent *f; (f = readdir(d)) != NULL;)
        if (f->d_name[0] == '.' && strlen(f->d_name) > 2)
            (void)snprintf(name, sizeof name, "%.255s", f->d_name);
    (void)closedir(d);
    return name;
}

/* A link that somebody puts in place of the temporary file is neither followed nor truncated by a library that opens it
 * again, nor followed by the commit. */
static void check_link(void)
{
    spx_tmpfile t;
    char target[64], victim[64], name[512], text[16] = "";
    struct stat sb;
    (void)snprintf(target, sizeof target, "%s/product", folder);
    (void)snprintf(victim, sizeof victim, "%s/victim", folder);
    FILE *f = fopen(victim, "w");
    CHECK(f != NULL && fputs("precious", f) >= 0 && fclose(f) == 0);
    CHECK(spx_tmpfile_open(&t, target, 0, &e) == SPX_OK);
    (void)snprintf(name, sizeof name, "%s/%s", folder, temporary());
    CHECK(unlink(name) == 0 && symlink(victim, name) == 0);
    const int fd = open(t.path, O_RDWR | O_TRUNC);
    CHECK(fd >= 0 && write(fd, "new", 3) == 3 && close(fd) == 0);
    CHECK(fstat(t.fd, &sb) == 0 && sb.st_size == 3);
    spx_tmpfile_discard(&t);
    CHECK((f = fopen(victim, "r")) != NULL && fgets(text, sizeof text, f) != NULL && fclose(f) == 0);
    CHECK(strcmp(text, "precious") == 0 && unlink(victim) == 0);
    CHECK(count_files() == 0);
}

static void check_names(void)
{
    spx_tmpfile t;
    char target[512];
    (void)snprintf(target, sizeof target, "%s/%0255d", folder, 1);
    CHECK(spx_tmpfile_open(&t, target, 0, &e) == SPX_OK && spx_tmpfile_commit(&t, &e) == SPX_OK);
    CHECK(access(target, F_OK) == 0 && unlink(target) == 0);
    (void)snprintf(target, sizeof target, "%s/%0256d", folder, 1);
    CHECK(spx_tmpfile_open(&t, target, 0, &e) == SPX_EIO && count_files() == 0);
}

static char told[256];

static void tell(const char *name, const char *what)
{
    (void)name;
    (void)snprintf(told, sizeof told, "%s", what);
}

static void check_clean(void)
{
    spx_tmpfile t;
    char target[64], other[512];
    int status;
    (void)snprintf(target, sizeof target, "%s/product", folder);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(spx_tmpfile_open(&t, target, 0, &e) == SPX_OK);
        (void)kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && count_files() == 1);
    /* the same file, but of another machine */
    char *name = strdup(temporary());
    CHECK(name != NULL);
    (void)snprintf(other, sizeof other, "%s/%s", folder, name);
    char *host = strstr(other, ".specpipe-") + 10;
    *host = *host == '0' ? '1' : '0';
    FILE *f = fopen(other, "w");
    CHECK(f != NULL && fclose(f) == 0);
    CHECK(spx_tmpfile_clean(folder, tell, &e) == SPX_OK && count_files() == 1 && access(other, F_OK) == 0);
    CHECK(spx_tmpfile_clean(folder, tell, &e) == SPX_OK && strncmp(told, "kept: of another", 16) == 0);
    CHECK(unlink(other) == 0);
    free(name);
    /* names that are not ours, and a process that runs: this one */
    static const char *const foreign[] = {".x.specpipe-", ".x.specpipe-00000000-1", "x.specpipe-00000000-1-abcdef",
                                          ".x.specpipe-00000000-1-abcdefg", ".x.h5.abcdef"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        (void)snprintf(other, sizeof other, "%s/%s", folder, foreign[i]);
        CHECK((f = fopen(other, "w")) != NULL && fclose(f) == 0);
        told[0] = '\0';
        CHECK(spx_tmpfile_clean(folder, tell, &e) == SPX_OK && told[0] == '\0' && unlink(other) == 0);
    }
    CHECK(spx_tmpfile_open(&t, target, 0, &e) == SPX_OK);
    CHECK(spx_tmpfile_clean(folder, tell, &e) == SPX_OK && count_files() == 1 &&
          strcmp(told, "kept: its process runs") == 0);
    spx_tmpfile_discard(&t);
    CHECK(count_files() == 0);
}

int main(void)
{
    static spx_tmpfile t[MANY];
    static char target[MANY][64];
    CHECK(mkdtemp(folder) != NULL);
    check_link();
    check_names();
    check_clean();
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
