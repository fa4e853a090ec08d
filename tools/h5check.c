/* h5check: checks products against the schema. */
#include <stdio.h>
#include <string.h>

#include "app/main.h"
#include "h5/failure.h"
#include "h5/file.h"
#include "h5/inventory.h"
#include "h5/schema.h"

enum { AS_TEXT, AS_MDOC };

static struct {
    int schema;
} o = {.schema = SPX_NO_CHOICE};

static const spx_opt options[] = {
    SPX_OPTION(CHOICE, "schema", 0, NULL, o.schema,
               "Print the definition of the products, as text or for the manual, and check nothing",
               .choices = SPX_CHOICES({"text", AS_TEXT}, {"mdoc", AS_MDOC})),
    {0}};

static spx_status print_schema(void)
{
    if (o.schema == AS_MDOC) {
        spx_schema_mdoc(stdout);
        return SPX_OK;
    }
    for (const spx_schema_text *t = spx_schema_texts; t->name != NULL; t++)
        printf("%s%s", t == spx_schema_texts ? "" : "\n", t->text);
    return SPX_OK;
}

/* Datasets of a file that differ from its inventory. */
typedef struct {
    const char *name;
    size_t n;
} damage;

static void report(void *ctx, const char *path)
{
    damage *d = ctx;
    printf("%s:%s: is damaged: values differ from the file's inventory\n", d->name, path);
    d->n++;
}

/* All of the datasets against the file's inventory; the structure was when it was opened. */
static spx_status check_inventory(const spx_input *in, int *has, spx_err *e)
{
    damage d = {in->name, 0};
    const spx_status st = spx_inventory_verify_all(in->file, report, &d, has, e);
    if (st != SPX_OK || d.n == 0)
        return st;
    return spx_fail_at(e, SPX_EINPUT, in->name, NULL, "make it again, or copy it again", "is damaged in %zu dataset%s",
                       d.n, d.n > 1 ? "s" : "");
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_status worst = SPX_OK;
    if (o.schema != SPX_NO_CHOICE)
        return print_schema();
    /* every file gets its say; the last error is the one that spx_main() prints */
    for (size_t i = 0; i < s->ninput || i == 0; i++) {
        spx_input *in = NULL;
        size_t nbad = 0;
        int has = 0;
        spx_err err = {0};
        spx_status st = spx_run_extra_input(s, s->ninput > 0 ? s->input[i] : "-", &in, &err);
        if (st == SPX_OK)
            st = check_inventory(in, &has, &err);
        if (st == SPX_OK)
            st = spx_schema_check(in->file, in->name, stdout, &nbad, &err);
        st = spx_h5_settle(st, &err);
        if (st != SPX_OK) {
            if (worst > SPX_ENO)
                spx_error("%s", spx_err_text(e));
            *e = err;
            worst = st;
        } else if (nbad > 0) {
            worst = worst == SPX_OK ? SPX_ENO : worst;
        } else {
            spx_detail("%s: is valid%s", in->name,
                       has                ? ", and as it was written"
                       : s->common.verify ? "; it has no inventory: another program wrote or changed it"
                                          : "");
        }
    }
    return worst;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "h5check",
                                        .summary = "check products against their definition",
                                        .usage = "[OPTION...] [FILE...]",
                                        .example = "h5check frame.h5",
                                        .options = options,
                                        .flags = SPX_OUT_NONE | SPX_IN_OPTIONAL, /* --schema needs none */
                                        .run = run};
    return spx_main(&program, argc, argv);
}
