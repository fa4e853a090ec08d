/* Provides options: parsing, help, manual and record of a table of options (app/opt.h). */
#include "app/opt.h"

#include <string.h>

#include "base/mem.h"
#include "base/parse.h"

enum { NTABLE = 3 };

_Static_assert(sizeof(spx_opt_kind) == sizeof(int), "an enum that holds a choice is stored as an int");

/* ---- finding an option ---- */

#define EACH_OPTION(p, o)                                                                                              \
    for (int t_ = 0; t_ < NTABLE; t_++)                                                                                \
        for (const spx_opt *o = (p)->tables[t_]; o != NULL && o->kind != SPX_OPT_END; o++)

static const spx_opt *find_long(const spx_opt_program *p, const char *name, size_t len, int *several)
{
    const spx_opt *found = NULL;
    *several = 0;
    EACH_OPTION(p, o)
    {
        if (o->kind == SPX_OPT_HEADING || strncmp(o->name, name, len) != 0)
            continue;
        if (strlen(o->name) == len) {
            *several = 0;
            return o;
        }
        if (found != NULL)
            *several = 1;
        found = o;
    }
    return found;
}

static const spx_opt *find_letter(const spx_opt_program *p, char c)
{
    EACH_OPTION(p, o)
    {
        if (o->kind != SPX_OPT_HEADING && o->letter == c)
            return o;
    }
    return NULL;
}

/* Edit distance between two names, up to a few letters, for "did you mean". */
static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(b), row[64];
    if (n >= 64 || strlen(a) >= 64)
        return 64;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t swap = diagonal + (a[i - 1] != b[j - 1]), best = row[j] + 1;
            diagonal = row[j];
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = swap < best ? swap : best;
        }
    }
    return row[n];
}

static spx_status unknown(const spx_opt_program *p, const char *name, spx_err *e)
{
    const spx_opt *best = NULL;
    size_t least = 4;
    EACH_OPTION(p, o)
    {
        size_t d = o->kind == SPX_OPT_HEADING ? 64 : distance(name, o->name);
        if (d < least) {
            least = d;
            best = o;
        }
    }
    if (best != NULL)
        return spx_fail(e, SPX_EUSAGE, "unknown option --%s: did you mean --%s?", name, best->name);
    return spx_fail(e, SPX_EUSAGE, "unknown option --%s: see %s --help", name, p->name);
}

/* ---- parsing ---- */

static spx_status in_range(const spx_opt *o, double v, spx_err *e)
{
    if (o->min == 0 && o->max == 0)
        return SPX_OK;
    if (v < o->min || v > o->max)
        return spx_fail(e, SPX_EUSAGE, "--%s: %g is outside %g to %g", o->name, v, o->min, o->max);
    return SPX_OK;
}

/* Words of a choice: "one|two". */
static void choice_words(const spx_opt *o, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (const spx_opt_choice *c = o->choices; c->word != NULL && n < size; c++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", c > o->choices ? "|" : "", c->word);
}

/* An option without its value; given: "--name", "-n". */
static spx_status needs_value(const spx_opt *o, const char *given, spx_err *e)
{
    char words[256];
    if (o->kind == SPX_OPT_CHOICE)
        choice_words(o, words, sizeof words);
    else
        (void)snprintf(words, sizeof words, "%s", o->arg);
    return spx_fail(e, SPX_EUSAGE, "%s needs a value (%s)", given, words);
}

static spx_status store(const spx_opt *o, const char *arg, int flag, spx_err *e)
{
    spx_status st = SPX_OK;
    char what[80], words[256];
    (void)snprintf(what, sizeof what, "--%s", o->name);
    if (o->given != NULL)
        *o->given = 1;
    switch (o->kind) {
    case SPX_OPT_FLAG:
        *(int *)o->value = flag;
        break;
    case SPX_OPT_INT: {
        long v = 0;
        st = spx_parse_long(arg, what, &v, e);
        if (st == SPX_OK && (st = in_range(o, (double)v, e)) == SPX_OK)
            *(long *)o->value = v;
        break;
    }
    case SPX_OPT_DOUBLE: {
        double v = 0;
        st = spx_parse_double(arg, what, &v, e);
        if (st == SPX_OK && (st = in_range(o, v, e)) == SPX_OK)
            *(double *)o->value = v;
        break;
    }
    case SPX_OPT_BYTES:
        st = spx_parse_bytes(arg, what, o->value, e);
        if (st == SPX_OK && (double)*(size_t *)o->value < o->min)
            st = spx_fail(e, SPX_EUSAGE, "--%s: '%s' is less than %.0f MiB", o->name, arg, o->min / 1048576);
        break;
    case SPX_OPT_STRING:
        *(const char **)o->value = arg;
        break;
    case SPX_OPT_CHOICE:
        for (const spx_opt_choice *c = o->choices; c->word != NULL; c++)
            if (strcmp(c->word, arg) == 0) {
                *(int *)o->value = c->value;
                return SPX_OK;
            }
        choice_words(o, words, sizeof words);
        return spx_fail(e, SPX_EUSAGE, "--%s: '%s' is not one of %s", o->name, arg, words);
    case SPX_OPT_LIST: {
        spx_opt_list *l = o->value;
        const char **more = spx_grow(l->value, l->n, 1, &l->capacity, sizeof *more, e);
        if (more == NULL)
            return SPX_EIO;
        more[l->n++] = arg;
        l->value = more;
        break;
    }
    default:
        st = spx_fail(e, SPX_EBUG, "option --%s has no kind", o->name);
    }
    return st;
}

/* The value of an option that was written out, whose name may have been that of a choice before. */
static spx_status store_long(const spx_opt_program *p, const spx_opt *o, const char *arg, spx_err *e)
{
    EACH_OPTION(p, q)
    {
        if (q->was != NULL && strcmp(q->was, o->name) == 0)
            for (const spx_opt_choice *c = q->choices; c->word != NULL; c++)
                if (strcmp(c->word, arg) == 0)
                    return spx_fail(e, SPX_EUSAGE,
                                    "--%s %s: is called --%s %s now: use that (or ./%s, if it is a file)", o->name, arg,
                                    q->name, arg, arg);
    }
    return store(o, arg, 1, e);
}

static spx_status parse_long(const spx_opt_program *p, int argc, char **argv, int *i, spx_err *e)
{
    const char *name = argv[*i] + 2, *eq = strchr(name, '=');
    size_t len = eq != NULL ? (size_t)(eq - name) : strlen(name);
    int several, flag = 1;
    const spx_opt *o = len > 0 ? find_long(p, name, len, &several) : NULL;
    if (o == NULL && len > 3 && strncmp(name, "no-", 3) == 0) {
        o = find_long(p, name + 3, len - 3, &several);
        if (o != NULL && o->kind != SPX_OPT_FLAG)
            o = NULL;
        flag = 0;
    }
    if (o == NULL) {
        char word[80];
        (void)snprintf(word, sizeof word, "%.*s", (int)(len < 70 ? len : 70), name);
        return unknown(p, word, e);
    }
    if (several)
        return spx_fail(e, SPX_EUSAGE, "--%.*s is not unique: write the option out", (int)len, name);
    if (o->kind == SPX_OPT_FLAG) {
        if (eq != NULL)
            return spx_fail(e, SPX_EUSAGE, "--%s takes no value", o->name);
        return store(o, NULL, flag, e);
    }
    if (eq != NULL)
        return store_long(p, o, eq + 1, e);
    if (*i + 1 >= argc)
        return needs_value(o, argv[*i], e);
    return store_long(p, o, argv[++*i], e);
}

static spx_status parse_letters(const spx_opt_program *p, int argc, char **argv, int *i, spx_err *e)
{
    for (const char *c = argv[*i] + 1; *c != '\0'; c++) {
        const spx_opt *o = find_letter(p, *c);
        spx_status st;
        if (o == NULL)
            return spx_fail(e, SPX_EUSAGE, "unknown option -%c: see %s --help", *c, p->name);
        if (o->kind == SPX_OPT_FLAG) {
            if ((st = store(o, NULL, 1, e)) != SPX_OK)
                return st;
            continue;
        }
        if (c[1] != '\0')
            return store(o, c + 1, 1, e);
        if (*i + 1 >= argc)
            return needs_value(o, (const char[]){'-', *c, '\0'}, e);
        return store(o, argv[++*i], 1, e);
    }
    return SPX_OK;
}

spx_status spx_opt_parse(const spx_opt_program *p, int argc, char **argv, int *nfile, spx_err *e)
{
    int n = 0, only_files = 0;
    for (int i = 1; i < argc; i++) {
        spx_status st = SPX_OK;
        /* -:/path is a dataset of standard input */
        if (only_files || argv[i][0] != '-' || argv[i][1] == '\0' || argv[i][1] == ':')
            argv[1 + n++] = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            only_files = 1;
        else if (argv[i][1] == '-')
            st = parse_long(p, argc, argv, &i, e);
        else
            st = parse_letters(p, argc, argv, &i, e);
        if (st != SPX_OK)
            return st;
    }
    *nfile = n;
    return SPX_OK;
}

/* ---- the command line of a record ---- */

/* Whether a reproducible command has the option. */
static int has_place_only(const spx_opt *o)
{
    return o != NULL && o->place != NULL && o->place[0] == '\0';
}

/* Bytes of an option's value that a reproducible record has. */
static size_t length_without_place(const spx_opt *o, const char *value)
{
    return o != NULL && o->place != NULL ? strcspn(value, o->place) : strlen(value);
}

/* Copies a cluster of letters without options that say the place alone; *value: the next argument belongs to its last
 * letter, which *skipped says of whether it is left out. */
static void copy_letters(const spx_opt_program *p, const char *arg, char *kept, int *value, int *skipped)
{
    *value = *skipped = 0;
    *kept++ = '-';
    for (const char *c = arg + 1; *c != '\0'; c++) {
        const spx_opt *o = find_letter(p, *c);
        const int flag = o == NULL || o->kind == SPX_OPT_FLAG, out = has_place_only(o);
        const size_t n = flag ? 1 : strlen(c);
        if (!out) {
            memcpy(kept, c, n);
            kept += n;
        }
        *value = !flag && n == 1;
        *skipped = out;
        c += n - 1;
    }
    *kept = '\0';
}

spx_status spx_opt_command(const spx_opt_program *p, int argc, char **argv, int reproducible, spx_text *out, spx_err *e)
{
    const size_t begin = out->n;
    spx_status st = spx_text_add(out, e, "%s", p->name);
    int only_files = !reproducible;
    for (int i = 1; i < argc && st == SPX_OK; i++) {
        const char *arg = argv[i], *eq = strchr(arg, '=');
        const spx_opt *o = NULL;
        const size_t len = strlen(arg);
        char *kept = spx_strdup(arg, e);
        int value = 0, skipped = 0, several;
        if (kept == NULL)
            return SPX_EIO;
        if (only_files || arg[0] != '-' || len == 1 || arg[1] == ':') {
            /* a file */
        } else if (strcmp(arg, "--") == 0) {
            only_files = 1;
        } else if (arg[1] == '-') {
            o = find_long(p, arg + 2, eq != NULL ? (size_t)(eq - arg) - 2 : len - 2, &several);
            value = o != NULL && o->kind != SPX_OPT_FLAG && eq == NULL;
            skipped = has_place_only(o);
            if (skipped)
                kept[0] = '\0';
            else if (eq != NULL)
                kept[(size_t)(eq + 1 - arg) + length_without_place(o, eq + 1)] = '\0';
        } else {
            copy_letters(p, arg, kept, &value, &skipped);
            kept[strcmp(kept, "-") == 0 ? 0 : strlen(kept)] = '\0';
        }
        if (kept[0] != '\0' || len == 0)
            st = spx_text_add(out, e, " %s", kept);
        spx_free(kept);
        if (value && ++i < argc && !skipped && st == SPX_OK)
            st = spx_text_add(out, e, " %.*s", (int)length_without_place(o, argv[i]), argv[i]);
    }
    if (st == SPX_OK)
        (void)spx_text_one_line(out->s + begin);
    return st;
}

size_t spx_opt_pipes(const spx_opt_program *p, const void *output)
{
    size_t n = 0;
    for (size_t t = 0; t < sizeof p->tables / sizeof *p->tables; t++)
        for (const spx_opt *o = p->tables[t]; o != NULL && o->kind != SPX_OPT_END; o++) {
            if (o->arg == NULL || strstr(o->arg, "FILE") == NULL || o->value == output)
                continue;
            const spx_opt_list *l = o->value;
            for (size_t k = 0; o->kind == SPX_OPT_LIST && k < l->n; k++)
                n += strcmp(l->value[k], "-") == 0;
            const char *const *text = o->value;
            n += o->kind == SPX_OPT_STRING && *text != NULL && strcmp(*text, "-") == 0;
        }
    return n;
}

void spx_opt_free(const spx_opt_program *p)
{
    EACH_OPTION(p, o)
    {
        if (o->kind == SPX_OPT_LIST) {
            spx_opt_list *l = o->value;
            spx_free(l->value);
            l->value = NULL;
            l->n = 0;
        }
    }
}

/* ---- help and manual ---- */

const char *spx_opt_word(const spx_opt_choice *choices, int value)
{
    while (choices->word != NULL && choices->value != value)
        choices++;
    return choices->word;
}

/* Value as text; 0 when there is none to show. */
static int value_text(const spx_opt *o, char *out, size_t size)
{
    const char *s;
    switch (o->kind) {
    case SPX_OPT_INT:
        return snprintf(out, size, "%ld", *(long *)o->value) > 0;
    case SPX_OPT_DOUBLE:
        return snprintf(out, size, "%.17g", *(double *)o->value) > 0;
    case SPX_OPT_BYTES:
        return snprintf(out, size, "%zu", *(size_t *)o->value) > 0;
    case SPX_OPT_FLAG:
        return snprintf(out, size, "%d", *(int *)o->value) > 0;
    case SPX_OPT_STRING:
    case SPX_OPT_CHOICE:
        s = o->kind == SPX_OPT_CHOICE ? spx_opt_word(o->choices, *(int *)o->value) : *(const char **)o->value;
        return s != NULL && snprintf(out, size, "%s", s) > 0;
    default:
        return 0;
    }
}

/* Formats the default: the value before parsing, a number with the digits of the source; or words in its place. */
static int default_text(const spx_opt *o, char *out, size_t size)
{
    if (o->absent != NULL)
        return snprintf(out, size, "%s", o->absent) > 0;
    if (o->kind == SPX_OPT_FLAG || o->kind == SPX_OPT_BYTES || o->no_default)
        return 0;
    if (o->kind == SPX_OPT_DOUBLE)
        return snprintf(out, size, "%g", *(double *)o->value) > 0;
    if (o->kind == SPX_OPT_INT && *(long *)o->value < 0)
        return 0;
    return value_text(o, out, size);
}

/* Name of an option's value, or the words that it may be. */
static void arg_text(const spx_opt *o, char *out, size_t size)
{
    if (o->kind == SPX_OPT_CHOICE && o->arg == NULL)
        choice_words(o, out, size);
    else
        (void)snprintf(out, size, "%s", o->arg);
}

/* Length of the first sentence of a text. */
static size_t first_sentence(const char *text)
{
    const char *end = strstr(text, ". ");
    return end != NULL ? (size_t)(end - text) : strlen(text);
}

/* Width of --help in columns, and the column at which descriptions begin. */
enum { WIDTH = 79, INDENT = 30 };

/* Fills the first n characters of a text into lines that begin at column `indent`; the first begins at column `at`.
 * Returns the column after the last word. */
static size_t fill(FILE *out, size_t at, size_t indent, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t len = 0;
        while (i + len < n && text[i + len] != ' ')
            len++;
        if (at > indent && at + 1 + len > WIDTH) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
        } else if (at > indent) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", (int)len, text + i);
        at += len;
        i += len;
        while (i < n && text[i] == ' ')
            i++;
    }
    return at;
}

static void help_option(const spx_opt *o, FILE *out)
{
    char left[96], value[256], shown[264];
    int n = o->letter != 0 ? snprintf(left, sizeof left, "  -%c, --%s%s", o->letter, o->no ? "no-" : "", o->name)
                           : snprintf(left, sizeof left, "      --%s%s", o->no ? "no-" : "", o->name);
    if (o->kind != SPX_OPT_FLAG) {
        left[n] = ' ';
        arg_text(o, left + n + 1, sizeof left - (size_t)n - 1);
    }
    if (strlen(left) < INDENT)
        fprintf(out, "%-*s", INDENT, left);
    else
        fprintf(out, "%s\n%*s", left, INDENT, "");
    const size_t at = fill(out, INDENT, INDENT, o->help, first_sentence(o->help));
    if (default_text(o, value, sizeof value)) {
        (void)snprintf(shown, sizeof shown, "[%s]", value);
        (void)fill(out, at, INDENT, shown, strlen(shown));
    }
    fputc('\n', out);
}

/* Prints the options of a table; `last`: those under headings that come last, or all but those. */
static void help_table(const spx_opt *table, int last, FILE *out)
{
    int is_last = 0;
    for (const spx_opt *o = table; o->kind != SPX_OPT_END; o++) {
        if (o->kind == SPX_OPT_HEADING)
            is_last = o->no;
        if (is_last != last || o->brief)
            continue;
        if (o->kind == SPX_OPT_HEADING) {
            (void)fill(out, 0, 0, o->name, strlen(o->name));
            fprintf(out, ":\n");
        } else
            help_option(o, out);
    }
}

void spx_opt_help(const spx_opt_program *p, FILE *out)
{
    size_t at = (size_t)fprintf(out, "%s - %s\n\nUsage: %s", p->name, p->summary, p->name);
    at -= strlen(p->name) + 3 + strlen(p->summary) + 2;
    (void)fill(out, at, 7, p->usage, strlen(p->usage));
    fputc('\n', out);
    if (p->example != NULL)
        fprintf(out, "Example: %s\n", p->example);
    fputc('\n', out);
    static const int order[NTABLE] = {1, 0, 2};
    for (int last = 0; last < 2; last++)
        for (int t = 0; t < NTABLE; t++)
            if (p->tables[order[t]] != NULL)
                help_table(p->tables[order[t]], last, out);
    at = 0;
    EACH_OPTION(p, o)
    {
        char name[80];
        if (!o->brief)
            continue;
        (void)snprintf(name, sizeof name, "%s--%s%s", at == 0 ? "Also, see specpipe(7): " : "", o->no ? "no-" : "",
                       o->name);
        at = fill(out, at, 2, name, strlen(name));
    }
    fprintf(out, "%s\nManual: man %s; overview: man 7 specpipe\n", at > 0 ? "\n" : "", p->name);
}

/* Escapes text for mdoc (a leading '.' or a backslash would be markup), one sentence a line. */
static void mdoc_text(const char *s, FILE *out)
{
    if (*s == '.' || *s == '\'')
        fputs("\\&", out);
    for (; *s != '\0'; s++) {
        if (*s == '\\')
            fputs("\\e", out);
        else if (s[0] == '.' && s[1] == ' ') {
            fputs(".\n", out);
            s++;
        } else
            fputc(*s, out);
    }
}

void spx_opt_mdoc(const spx_opt_program *p, FILE *out)
{
    fprintf(out, ".Bl -tag -width Ds\n");
    EACH_OPTION(p, o)
    {
        char value[256];
        if (o->kind == SPX_OPT_HEADING)
            continue;
        fprintf(out, ".It ");
        if (o->letter != 0)
            fprintf(out, "Fl %c , ", o->letter);
        fprintf(out, "Fl Fl %s%s", o->no ? "no-" : "", o->name);
        if (o->kind != SPX_OPT_FLAG) {
            fprintf(out, " Ar ");
            arg_text(o, value, sizeof value);
            mdoc_text(value, out);
        }
        fprintf(out, "\n");
        mdoc_text(o->help, out);
        fprintf(out, ".\n");
        if (default_text(o, value, sizeof value)) {
            fprintf(out, "Default: ");
            mdoc_text(value, out);
            fprintf(out, ".\n");
        }
    }
    fprintf(out, ".El\n");
}

void spx_opt_names(const spx_opt_program *p, FILE *out)
{
    EACH_OPTION(p, o)
    {
        if (o->kind != SPX_OPT_HEADING)
            fprintf(out, "--%s%s\n", o->no ? "no-" : "", o->name);
    }
}

char *spx_opt_record(const spx_opt_program *p, const char *const *skip, int reproducible, spx_err *e)
{
    char *text = NULL;
    size_t size = 0, capacity = 0;
    for (int pass = 0; pass < 2; pass++) {
        size = 0;
        EACH_OPTION(p, o)
        {
            char value[4096];
            int left_out = o->kind == SPX_OPT_HEADING || (reproducible && has_place_only(o)) ||
                           (o->no_default && o->given != NULL && !*o->given);
            for (const char *const *s = skip; s != NULL && *s != NULL; s++)
                left_out |= o->name != NULL && strcmp(*s, o->name) == 0;
            if (left_out)
                continue;
            size_t n = o->kind == SPX_OPT_LIST ? ((spx_opt_list *)o->value)->n : 1;
            for (size_t i = 0; i < n; i++) {
                if (o->kind == SPX_OPT_LIST)
                    (void)snprintf(value, sizeof value, "%s", ((spx_opt_list *)o->value)->value[i]);
                else if (!value_text(o, value, sizeof value))
                    continue;
                if (reproducible)
                    value[length_without_place(o, value)] = '\0';
                int k = snprintf(text != NULL ? text + size : NULL, text != NULL ? capacity - size : 0, "%s=%s\n",
                                 o->name, spx_text_one_line(value));
                size += (size_t)(k > 0 ? k : 0);
            }
        }
        if (pass == 0) {
            capacity = size + 1;
            if ((text = spx_alloc(capacity, 1, e)) == NULL)
                return NULL;
        }
    }
    return text;
}

/* What completion offers as the value of an option: its words, or a kind of name. */
static void offer_text(const spx_opt *o, char *out, size_t size)
{
    size_t n = 0;
    (void)snprintf(out, size, "-");
    if (o->kind == SPX_OPT_CHOICE)
        for (const spx_opt_choice *c = o->choices; c->word != NULL && n < size; c++)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? " " : "", c->word);
    else if (o->offers != NULL)
        (void)snprintf(out, size, "@%s", o->offers);
    else if (o->arg != NULL && strchr(o->arg, '|') != NULL &&
             strspn(o->arg, "abcdefghijklmnopqrstuvwxyz0123456789|") == strlen(o->arg)) {
        /* the few numbers or texts that it may be */
        (void)snprintf(out, size, "%s", o->arg);
        for (char *p = out; (p = strchr(p, '|')) != NULL;)
            *p = ' ';
    } else if (o->arg != NULL && (strstr(o->arg, "FOLDER") != NULL || strstr(o->arg, "DIR") != NULL))
        (void)snprintf(out, size, "@folders");
    else if (o->arg != NULL && strstr(o->arg, "FILE") != NULL)
        (void)snprintf(out, size, "@files");
}

void spx_opt_completion(const spx_opt_program *p, FILE *out)
{
    EACH_OPTION(p, o)
    {
        char arg[256] = "-", offer[256];
        const char letter[] = {'-', o->letter, '\0'};
        if (o->kind == SPX_OPT_HEADING)
            continue;
        if (o->kind != SPX_OPT_FLAG)
            arg_text(o, arg, sizeof arg);
        offer_text(o, offer, sizeof offer);
        fprintf(out, "--%s%s\t%s\t%s\t%s\t%.*s\n", o->no ? "no-" : "", o->name, letter, arg, offer,
                (int)first_sentence(o->help), o->help);
    }
}
