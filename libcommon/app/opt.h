/* Provides options: one table drives parsing, range checks, --help, shell completion, the manual's OPTIONS section and
 * the options recorded in a product's provenance. */
#ifndef SPX_OPT_H
#define SPX_OPT_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "base/text.h"

typedef enum {
    SPX_OPT_END = 0,
    SPX_OPT_FLAG,   /* int *: 1 when given, 0 with --no-NAME */
    SPX_OPT_INT,    /* long *, within [min, max] */
    SPX_OPT_DOUBLE, /* double *, finite, within [min, max] */
    SPX_OPT_BYTES,  /* size_t *: 500M, 4G, 1.5GiB */
    SPX_OPT_STRING, /* const char ** */
    SPX_OPT_CHOICE, /* int *, or an enum's: the value of one of the words in `choices` */
    SPX_OPT_LIST,   /* spx_opt_list *: may be given several times */
    SPX_OPT_HEADING /* heading between options in --help */
} spx_opt_kind;

/* Values of a repeatable option, in order. */
typedef struct {
    size_t n, capacity;
    const char **value;
} spx_opt_list;

/* A word that a CHOICE may be, and the value that it stands for; a list ends with {0}. */
typedef struct {
    const char *word;
    int value;
} spx_opt_choice;

/* Value that is no word's: the option was not given and has no default. */
#define SPX_NO_CHOICE (-1)

typedef struct {
    spx_opt_kind kind;
    const char *name; /* long name without dashes */
    char letter;      /* short name, or 0 */
    const char *arg;  /* name of the value in the help, e.g. "MIN,MAX,STEP" */
    void *value;      /* variable that is set; holds the default before parsing */
    const char *help; /* its first sentence, of few words, is shown by --help, all of it stands in the manual; without
                         the last full stop. The default is added where it is a number, a choice or a string. */
    double min, max;  /* INT, DOUBLE: both 0: no limits; BYTES: min alone */
    const spx_opt_choice *choices; /* CHOICE: SPX_CHOICES() */
    const char *was; /* CHOICE: its name of former releases, which is another option's now: its words are refused there,
                        and the message names this one */
    int *given;      /* set to 1 when the option was given; may be NULL */
    int no_default;  /* INT, DOUBLE: without it there is no value: none is shown, and recorded only when given */
    const char *absent; /* shown as the default, where no value says what holds without the option: "all" */
    int no;             /* FLAG, on by default: shown as --no-NAME, and `help` says what that does */
    int brief;          /* --help only names it: specpipe(7) has the rest */
    const char *place;  /* says where or on how many processors a run takes place, which a reproducible record has not:
                           what  is left out of the value, from this character on; "": option and value */
    const char *offers; /* what shell completion offers as its value, where the file on the command line knows it:
                           "columns", "tables" */
} spx_opt;

/* Entries of a table: SPX_OPTION(INT, "threads", 'j', "N", threads, "Number of threads", .min = 0, .max = 4096), with
 * the variable itself, and what the option needs beyond that by name. */
#define SPX_OPTION(k, n, l, a, variable, ...)                                                                          \
    {                                                                                                                  \
        .kind = SPX_OPT_##k, .name = (n), .letter = (l), .arg = (a), .value = &(variable), .help = __VA_ARGS__         \
    }
/* .choices = SPX_CHOICES({"economic", SPX_SVD_ECONOMIC}, {"randomised", SPX_SVD_RANDOMISED}): each word stands beside
 * its value, so that neither order nor number of an enum matters. */
#define SPX_CHOICES(...)                                                                                               \
    (const spx_opt_choice[])                                                                                           \
    {                                                                                                                  \
        __VA_ARGS__,                                                                                                   \
        {                                                                                                              \
            NULL, 0                                                                                                    \
        }                                                                                                              \
    }
#define SPX_HEADING(text)                                                                                              \
    {                                                                                                                  \
        .kind = SPX_OPT_HEADING, .name = (text)                                                                        \
    }
/* Heading whose options --help shows last, after those of the other tables. */
#define SPX_HEADING_LAST(text)                                                                                         \
    {                                                                                                                  \
        .kind = SPX_OPT_HEADING, .name = (text), .no = 1                                                               \
    }

typedef struct {
    const char *name, *summary, *usage;
    const spx_opt *tables[3]; /* own options, shared ones for the output (which --help shows first), other shared ones;
                                 each ends with SPX_OPT_END; unused: NULL */
    const char *example;      /* the most common command line; may be NULL */
} spx_opt_program;

/* Parses argv (permuting: options may follow file names; `--` ends options). File names are left in argv[1..*nfile].
 * Long options may be shortened as long as they stay unique. SPX_EUSAGE on error. */
spx_status spx_opt_parse(const spx_opt_program *p, int argc, char **argv, int *nfile, spx_err *e);

/* Appends the command line to a text, the program's name first; reproducible: without what `place` says. Call it before
 * spx_opt_parse(). */
spx_status spx_opt_command(const spx_opt_program *p, int argc, char **argv, int reproducible, spx_text *out,
                           spx_err *e);

void spx_opt_free(const spx_opt_program *p); /* frees the SPX_OPT_LIST arrays */

/* Prints usage, example and options, in lines of less than 80 columns. */
void spx_opt_help(const spx_opt_program *p, FILE *out);
/* Prints the OPTIONS section of the manual, in mdoc(7). */
void spx_opt_mdoc(const spx_opt_program *p, FILE *out);
/* Prints long option names, one a line, for shell completion and tests. */
void spx_opt_names(const spx_opt_program *p, FILE *out);
/* Prints the options for shell completion, one a line, five fields with tabs between, "-" for an empty one: --NAME, -L,
 * the value's name (flags have none), what to offer as the value, and the help's first sentence. Offered are words with
 * blanks between, or @files, @folders, @columns or @tables of the file on the command line. */
void spx_opt_completion(const spx_opt_program *p, FILE *out);

/* How many options that take a FILE were given "-", without those of `output` (a variable). */
size_t spx_opt_pipes(const spx_opt_program *p, const void *output);

/* Word that stands for a value in such a list; NULL: none. */
const char *spx_opt_word(const spx_opt_choice *choices, int value);

/* Text `name=value` lines of all options in effect, for provenance; options named in `skip` (a NULL-ended list) left
 * out; reproducible: and what `place` says. Free with spx_free(). */
char *spx_opt_record(const spx_opt_program *p, const char *const *skip, int reproducible, spx_err *e);

#endif
