/* One option table drives parsing, range checks, --help, shell completion, the manual's OPTIONS section and the options
 * that are recorded in a product's provenance. */
#ifndef SPX_OPT_H
#define SPX_OPT_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

typedef enum {
    SPX_OPT_END = 0,
    SPX_OPT_FLAG,   /* int *: 1 when given, 0 with --no-NAME */
    SPX_OPT_INT,    /* long *, within [min, max] */
    SPX_OPT_DOUBLE, /* double *, finite, within [min, max] */
    SPX_OPT_BYTES,  /* size_t *: 500M, 4G, 1.5GiB */
    SPX_OPT_STRING, /* const char ** */
    SPX_OPT_CHOICE, /* const char **: one of the words in `choices`, separated by '|' */
    SPX_OPT_LIST,   /* spx_opt_list *: may be given several times */
    SPX_OPT_HEADING /* a line between options in --help */
} spx_opt_kind;

/* Values of a repeatable option, in order. */
typedef struct {
    size_t n;
    const char **value;
} spx_opt_list;

typedef struct {
    spx_opt_kind kind;
    const char *name;    /* long name without dashes */
    char letter;         /* short name, or 0 */
    const char *arg;     /* name of the value in the help, e.g. "MIN,MAX,STEP" */
    void *value;         /* where it goes; holds the default before parsing */
    const char *help;    /* one sentence; the default is added by itself where it is a number, a choice or a string */
    double min, max;     /* INT, DOUBLE: both 0: no limits */
    const char *choices; /* CHOICE */
    int *given;          /* set to 1 when the option was given; may be NULL */
    int no_default;      /* INT, DOUBLE: without it there is no value: none is shown, and recorded only when given */
} spx_opt;

/* Entries of a table: SPX_OPTION(INT, "threads", 'j', "N", threads, "Number of threads", .min = 0, .max = 4096), with
 * the variable itself, and what the option needs beyond that by name. */
#define SPX_OPTION(k, n, l, a, variable, ...)                                                                          \
    {                                                                                                                  \
        .kind = SPX_OPT_##k, .name = (n), .letter = (l), .arg = (a), .value = &(variable), .help = __VA_ARGS__         \
    }
#define SPX_HEADING(text)                                                                                              \
    {                                                                                                                  \
        .kind = SPX_OPT_HEADING, .name = (text)                                                                        \
    }

typedef struct {
    const char *name, *summary, *usage;
    const spx_opt *tables[3]; /* own options, then shared ones; each ends with SPX_OPT_END; unused: NULL */
} spx_opt_program;

/* Parse argv (permuting: options may follow file names; `--` ends options). File names are left in argv[1..*nfile].
 * Long options may be shortened as long as they stay unique. SPX_EUSAGE on error. */
spx_status spx_opt_parse(const spx_opt_program *p, int argc, char **argv, int *nfile, spx_err *e);

void spx_opt_free(const spx_opt_program *p); /* frees the SPX_OPT_LIST arrays */

void spx_opt_help(const spx_opt_program *p, FILE *out);
/* OPTIONS section of the manual, mdoc(7). */
void spx_opt_mdoc(const spx_opt_program *p, FILE *out);
/* Long option names, one a line, for shell completion and tests. */
void spx_opt_names(const spx_opt_program *p, FILE *out);
/* What options that are choices may be, for shell completion: "--NAME WORD", and "-L WORD" where there is a letter, a
 * line each. */
void spx_opt_choices(const spx_opt_program *p, FILE *out);

/* Text `name=value` lines of all options in effect, for provenance; options named in `skip` (a NULL-ended list) left
 * out. Free with spx_free(). */
char *spx_opt_record(const spx_opt_program *p, const char *const *skip, spx_err *e);

#endif
