/* Products of the lines of a list (run/list_run.h). */
#include "run/list_run.h"

#include <string.h>

#include "app/filelist.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/queue_lines.h"

/* One product: begins, makes and commits it. */
static spx_status make_one(spx_run *s, spx_list_make *make, void *ctx, const char *target, char *line, spx_err *e)
{
    spx_product *p = NULL;
    size_t n = 0;
    char *at = NULL, *copy = spx_strdup(line, e), **name = spx_alloc(strlen(line) / 2 + 1, sizeof *name, e);
    spx_status st = copy != NULL && name != NULL ? spx_run_begin_product(s, target, &p, e) : SPX_EIO;
    for (char *word = st == SPX_OK ? strtok_r(copy, "\t", &at) : NULL; word != NULL; word = strtok_r(NULL, "\t", &at))
        name[n++] = word;
    if (st == SPX_OK) {
        spx_run_line(s, line);
        st = make(ctx, n, name, e);
    }
    if (st == SPX_OK)
        st = spx_run_close_product(s, e);
    if (st == SPX_OK)
        st = spx_product_flush(p, (int)s->common.threads, e);
    if (st == SPX_OK)
        st = spx_product_publish(p, e);
    spx_run_end_product(s, p);
    spx_free(name);
    spx_free(copy);
    return st;
}

spx_status spx_list_run(spx_run *s, spx_list_make *make, void *ctx, spx_err *e)
{
    if (s->ninput != 1 || !spx_queue_is_list(s->input[0])) {
        const spx_status only = make(ctx, s->ninput, s->input, e);
        return only == SPX_OK ? spx_run_commit(s, e) : only;
    }
    spx_filelist target = {0};
    spx_queue_lines lines = {.fd = -1};
    size_t n = 0, nbad = 0;
    char *line = NULL;
    spx_status worst = SPX_OK, st = spx_queue_targets(s->common.output, s->input[0], &target, e);
    if (st == SPX_OK)
        st = spx_queue_lines_open(&lines, s->input[0] + 1, e);
    spx_mem_cache(1); /* products use the memory of those before */
    while (st == SPX_OK && (st = spx_queue_lines_next(&lines, &line, e)) == SPX_OK && line != NULL) {
        spx_err one = {0};
        if (n == target.n) {
            st = spx_fail(e, SPX_EUSAGE, "-o %s: has names of %zu products, and there are more: give each a line",
                          s->common.output, n);
            continue;
        }
        const spx_status made = make_one(s, make, ctx, target.name[n++], line, &one);
        if (made == SPX_OK)
            continue;
        one.code = made;
        if (one.file[0] == '\0')
            (void)spx_err_at(&one, target.name[n - 1], NULL);
        spx_error("%s", spx_err_text(&one));
        worst = nbad++ == 0 ? made : worst;
    }
    spx_mem_cache(0);
    if (st == SPX_OK && n < target.n)
        st = spx_fail(e, SPX_EUSAGE, "-o %s: has %zu names, and there were %zu lines: give each one line",
                      s->common.output, target.n, n);
    if (st == SPX_OK && nbad > 0)
        st = spx_fail(e, worst, "%zu of %zu products failed: see above", nbad, n);
    if (st == SPX_OK)
        spx_ending_success();
    spx_queue_lines_close(&lines);
    spx_filelist_free(&target);
    return st;
}
