/* Provides lists of input files, from names, folders and list files that a user gives (app/filelist.h). */
#include "app/filelist.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/lines.h"
#include "base/mem.h"

enum { MAX_DEPTH = 16 }; /* nesting of folders: a link may lead back up */

static spx_status append_name(spx_filelist *l, const char *name, spx_err *e)
{
    char **more = spx_grow(l->name, l->n, 1, &l->capacity, sizeof *more, e);
    if (more == NULL)
        return SPX_EIO;
    l->name = more;
    char *copy = spx_strdup(name, e);
    if (copy == NULL)
        return SPX_EIO;
    l->name[l->n++] = copy;
    return SPX_OK;
}

static int has_suffix(const char *name, const char *suffixes)
{
    size_t n = strlen(name);
    for (const char *s = suffixes; *s;) {
        size_t m = strcspn(s, " ");
        if (n > m && strncmp(name + n - m, s, m) == 0)
            return 1;
        s += m + (s[m] == ' ');
    }
    return 0;
}

static spx_status add_folder(spx_filelist *l, const char *path, const char *suffixes, int depth, spx_err *e)
{
    DIR *d = opendir(path);
    if (d == NULL)
        return spx_fail(e, SPX_EINPUT, "%s: the folder cannot be read: %s", path, strerror(errno));
    spx_status st = SPX_OK;
    for (struct dirent *f = readdir(d); f != NULL && st == SPX_OK; f = readdir(d)) {
        char name[4096];
        struct stat sb;
        if (f->d_name[0] == '.' || (size_t)snprintf(name, sizeof name, "%s/%s", path, f->d_name) >= sizeof name ||
            stat(name, &sb) != 0)
            continue;
        if (S_ISDIR(sb.st_mode) && depth < MAX_DEPTH)
            st = add_folder(l, name, suffixes, depth + 1, e);
        else if (S_ISREG(sb.st_mode) && has_suffix(name, suffixes))
            st = append_name(l, name, e);
    }
    closedir(d);
    return st;
}

static spx_status add_list(spx_filelist *l, const char *path, spx_err *e)
{
    spx_lines in = {.name = path, .file = fopen(path, "r")};
    char *line;
    size_t n;
    spx_status st = SPX_OK;
    if (in.file == NULL)
        return spx_fail(e, SPX_EINPUT, "@%s: the list cannot be read: %s", path, strerror(errno));
    while (st == SPX_OK && (line = spx_lines_raw(&in, &n)) != NULL) {
        line[strcspn(line, "\r\n")] = 0;
        if (line[0] && line[0] != '#')
            st = append_name(l, line, e);
    }
    return spx_lines_close(&in, st, e);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

spx_status spx_filelist_add(spx_filelist *l, const char *arg, const char *suffixes, spx_err *e)
{
    struct stat sb;
    size_t before = l->n;
    spx_status st;
    if (arg[0] == '@' && arg[1]) {
        st = add_list(l, arg + 1, e);
    } else if (strcmp(arg, "-") != 0 && stat(arg, &sb) == 0 && S_ISDIR(sb.st_mode)) {
        st = add_folder(l, arg, suffixes, 0, e);
        if (l->n > before + 1)
            qsort(l->name + before, l->n - before, sizeof *l->name, by_name);
    } else {
        return append_name(l, arg, e);
    }
    if (st == SPX_OK && l->n == before)
        st = spx_fail(e, SPX_EINPUT, "%s: names no files%s%s", arg, arg[0] != '@' && suffixes[0] ? " that end in " : "",
                      arg[0] != '@' ? suffixes : "");
    return st;
}

void spx_filelist_free(spx_filelist *l)
{
    for (size_t i = 0; i < l->n; i++)
        spx_free(l->name[i]);
    spx_free(l->name);
    memset(l, 0, sizeof *l);
}
