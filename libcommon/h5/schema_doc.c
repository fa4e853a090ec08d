/* Prints the schema as specpipe-schema(5), in mdoc(7). */
#include <stdio.h>
#include <string.h>

#include "h5/schema_internal.h"

void spx_schema_mdoc(FILE *out)
{
    size_t n;
    const spx_item *it = spx_schema_items(&n);
    const char *block = "";
    for (size_t i = 0; i < n; i++) {
        if (strcmp(block, it[i].block) != 0) {
            if (block[0] != '\0')
                fprintf(out, ".El\n");
            block = it[i].block;
            fprintf(out, ".Ss Block %s, version %s\n.Bl -tag -width Ds\n", block, it[i].version);
        }
        fprintf(out, ".It Pa %s\n", it[i].path);
        if (it[i].kind == SPX_ITEM_GROUP) {
            fprintf(out, "Group.\n");
        } else {
            fprintf(out, "%s [", it[i].kind == SPX_ITEM_TABLE ? "Table" : it[i].types);
            for (int k = 0; k < it[i].ndim; k++)
                fprintf(out, "%s%s", k > 0 ? ", " : "", it[i].dim[k]);
            fputc(']', out);
            if (it[i].per[0] != '\0') {
                fprintf(out, " or [%s", it[i].per);
                for (int k = 0; k < it[i].ndim; k++)
                    fprintf(out, ", %s", it[i].dim[k]);
                fputc(']', out);
            }
            fprintf(out, "%s%s%s.\n", it[i].units[0] != '\0' ? ", units " : "", it[i].units,
                    it[i].required ? "; required" : "");
        }
        fprintf(out, "%s.\n", it[i].meaning);
        if (it[i].flags[0] != '\0')
            fprintf(out, "Bits: %s.\n", it[i].flags);
        if (it[i].attrs[0] != '\0')
            fprintf(out, "Attributes: %s.\n", it[i].attrs);
        if (it[i].ncolumn == 0)
            continue;
        fprintf(out, ".Bl -column NAMENAMENAME float64 units\n");
        for (size_t k = 0; k < it[i].ncolumn; k++) {
            const spx_schema_column *c = &it[i].column[k];
            fprintf(out, ".It %s Ta %s Ta %s Ta %s\n", c->name, c->types, c->units[0] != '\0' ? c->units : "-",
                    c->meaning);
        }
        fprintf(out, ".El\n");
    }
    if (block[0] != '\0')
        fprintf(out, ".El\n");
}
