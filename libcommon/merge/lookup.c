/* Looks up arms, groups and rows in the inputs of h5merge and in the plan. */
#include <stdio.h>
#include <string.h>

#include "h5/object.h"
#include "merge/internal.h"

const char spx_merge_missing_column[] = "MISSING_ARMS";
const char *const spx_merge_block_name[NBLOCK] = {"frame", "spectra", "rvfit"};

spx_status spx_merge_leave_out(spx_merge *m, const spx_merge_input *p, const char *path, spx_err *e)
{
    return spx_text_add(&m->left_out, e, "%s%s:%s", m->left_out.n > 0 ? "\n" : "", p->name, path);
}

int spx_merge_find_arm(const spx_merge_input *p, const char *name)
{
    for (size_t i = 0; i < p->narm; i++)
        if (strcmp(p->arms[i].name, name) == 0)
            return (int)i;
    return -1;
}

int spx_merge_source_path(const spx_merge *m, const spx_merge_group *g, size_t part, char *path)
{
    const spx_merge_input *p = &m->part[part];
    if (m->by == SPX_MERGE_CAMERAS && g->part != part)
        return 0;
    if (strncmp(g->path, "/rvfit/", 7) == 0) {
        (void)snprintf(path, PATH_LEN, "%s", g->path);
        return spx_h5_exists(p->file, path);
    }
    int i = spx_merge_find_arm(p, g->arm);
    if (i >= 0)
        (void)snprintf(path, PATH_LEN, "%s", p->arms[i].path);
    return i >= 0;
}

spx_merge_origin spx_merge_row_origin(const spx_merge *m, const spx_merge_group *g, size_t row)
{
    if (m->by != SPX_MERGE_CAMERAS)
        return m->ref[row];
    size_t r = m->where[g->part][row];
    return (spx_merge_origin){r == SPX_NO_ROW ? SPX_NO_ROW : g->part, r};
}

int spx_merge_has_word(const char *text, const char *word, size_t len)
{
    while (*text != '\0') {
        size_t n = strcspn(text, " ");
        if (n == len && memcmp(text, word, len) == 0)
            return 1;
        text += n + (text[n] == ' ');
    }
    return 0;
}

int spx_merge_row_known(const spx_merge_input *p, size_t row)
{
    if (row == SPX_NO_ROW)
        return 0;
    for (size_t a = 0; a < p->narm && p->flagged != NULL; a++)
        if (!spx_merge_has_word(p->flagged[row], p->arms[a].name, strlen(p->arms[a].name)))
            return 1;
    return p->flagged == NULL || p->narm == 0;
}
