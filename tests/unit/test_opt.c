/* Checks options: kinds, ranges, abbreviations, lists, and their record in the provenance. */
#include "app/opt.h"

#include <string.h>

#include "base/mem.h"
#include "base/parse.h"
#include "check_on.h"

static int flag, given, has_first, on = 1;
static long number, first;
static double real;
static size_t bytes;
static const char *word;
static enum { FIRST_CHOICE = -7, SECOND_CHOICE = 3 } choice = SECOND_CHOICE;
static int no_choice = SPX_NO_CHOICE;
static spx_opt_list list;

static const spx_opt options[] = {
    SPX_OPTION(FLAG, "flag", 'x', NULL, flag, "A flag"),
    SPX_OPTION(INT, "number", 'n', "N", number, "A number", .min = 1, .max = 10, .given = &given, .place = ""),
    SPX_OPTION(DOUBLE, "real", 0, "X", real, "A real"),
    SPX_OPTION(INT, "first", 0, "N", first, "Without it none", .given = &has_first, .no_default = 1),
    SPX_OPTION(BYTES, "bytes", 0, "SIZE", bytes, "A size"),
    SPX_OPTION(STRING, "word", 0, "WORD", word, "A word", .place = ":"),
    SPX_OPTION(CHOICE, "choice", 0, NULL, choice, "A choice",
               .choices = SPX_CHOICES({"one", FIRST_CHOICE}, {"two", SECOND_CHOICE})),
    SPX_OPTION(CHOICE, "unset", 'u', NULL, no_choice, "Another", .choices = SPX_CHOICES({"one", 1}, {"once", 2}),
               .was = "word"),
    SPX_OPTION(LIST, "list", 'l', "ITEM", list, "Items", .absent = "all"),
    SPX_HEADING_LAST("Rare"),
    SPX_OPTION(FLAG, "on", 0, NULL, on,
               "Switch off what is on without this option, which takes more words than fit into one line of the help. "
               "And a second sentence",
               .no = 1),
    SPX_OPTION(FLAG, "brief", 0, NULL, flag, "Only named", .brief = 1),
    {0},
};
static const spx_opt_program program = {"test", "summary", "[options]", {options, NULL, NULL}, "test file"};

static spx_status parse(int n, const char *const *args, int *nfile, spx_err *e)
{
    static char copy[16][64];
    static char *argv[17];
    argv[0] = copy[0];
    for (int i = 0; i < n; i++) {
        (void)snprintf(copy[i + 1], sizeof copy[0], "%s", args[i]);
        argv[i + 1] = copy[i + 1];
    }
    memset(e, 0, sizeof *e);
    spx_status st = spx_opt_parse(&program, n + 1, argv, nfile, e);
    if (st == SPX_OK && *nfile > 0)
        CHECK(strcmp(argv[1], "file") == 0);
    return st;
}
#define PARSE(...)                                                                                                     \
    parse((int)(sizeof(const char *[]){__VA_ARGS__} / sizeof(char *)), (const char *[]){__VA_ARGS__}, &nfile, &e)

/* The reproducible command line, without --number (-n) and what comes behind a colon in --word, as words with blanks
 * between. */
static int command(const char *line, const char *want)
{
    char copy[128], *argv[16];
    int argc = 0;
    spx_text text = {0};
    spx_err e = {0};
    (void)snprintf(copy, sizeof copy, "./test %s", line);
    for (char *part = strtok(copy, " "); part != NULL; part = strtok(NULL, " "))
        argv[argc++] = part;
    const int same = spx_opt_command(&program, argc, argv, 1, &text, &e) == SPX_OK && strcmp(text.s, want) == 0;
    if (!same)
        printf("%s: %s\n", line, text.s);
    spx_text_free(&text);
    return same;
}

int main(void)
{
    spx_err e;
    int nfile = 0;
    CHECK(PARSE("-x", "--number=3", "file", "--rea", "1e-3", "--bytes", "1.5G") == SPX_OK);
    CHECK(flag == 1 && number == 3 && given == 1 && real == 1e-3 && bytes == (size_t)1536 << 20 && nfile == 1);
    CHECK(PARSE("--no-flag", "-n4", "--", "file", "-y") == SPX_OK);
    CHECK(flag == 0 && number == 4 && nfile == 2);
    CHECK(PARSE("-l", "a", "--list=b", "-lc", "--choice", "one", "--word", "-") == SPX_OK);
    CHECK(list.n == 3 && strcmp(list.value[1], "b") == 0 && choice == FIRST_CHOICE && strcmp(word, "-") == 0);
    char *record = spx_opt_record(&program, NULL, 0, &e);
    CHECK(record != NULL && strstr(record, "list=a\nlist=b\nlist=c\n") != NULL && strstr(record, "number=4\n") != NULL);
    CHECK(record != NULL && strstr(record, "first=") == NULL);
    CHECK(record != NULL && strstr(record, "choice=one\n") != NULL && strstr(record, "unset=") == NULL);
    spx_free(record);
    CHECK(PARSE("--first", "0", "--word", "a:1") == SPX_OK);
    record = spx_opt_record(&program, NULL, 0, &e);
    CHECK(record != NULL && strstr(record, "first=0\n") != NULL && strstr(record, "word=a:1\n") != NULL);
    spx_free(record);
    record = spx_opt_record(&program, NULL, 1, &e);
    CHECK(record != NULL && strstr(record, "number") == NULL && strstr(record, "word=a\n") != NULL);
    spx_free(record);
    char help[4096] = "";
    FILE *f = fmemopen(help, sizeof help, "w");
    CHECK(f != NULL);
    if (f != NULL) {
        spx_opt_help(&program, f);
        (void)fclose(f);
    }
    CHECK(strstr(help, "Without it none\n") != NULL && strstr(help, "A number [") != NULL);
    CHECK(strstr(help, "Example: test file\n") != NULL && strstr(help, "Items [all]\n") != NULL);
    CHECK(strstr(help, "--no-on") != NULL && strstr(help, "second") == NULL && strstr(help, "Only named") == NULL);
    CHECK(strstr(help, "\n                              takes more") != NULL);
    const char *rare = strstr(help, "Rare:\n");
    CHECK(rare != NULL && strstr(rare, "--no-on") != NULL && strstr(rare, "--list") == NULL);
    CHECK(strstr(help, "see specpipe(7): --brief\n") != NULL);
    for (const char *line = help; *line != '\0'; line += strcspn(line, "\n") + 1)
        CHECK(strcspn(line, "\n") < 80);
    CHECK(strstr(help, "--choice one|two        A choice [one]\n") != NULL);
    CHECK(strstr(help, "--unset one|once        Another\n") != NULL);
    char page[4096] = "";
    f = fmemopen(page, sizeof page, "w");
    CHECK(f != NULL);
    if (f != NULL) {
        spx_opt_mdoc(&program, f);
        (void)fclose(f);
    }
    CHECK(strstr(page, ".It Fl Fl no-on\n") != NULL && strstr(page, "help.\nAnd a second sentence.\n") != NULL);
    CHECK(strstr(page, ".It Fl Fl brief\nOnly named.\n") != NULL && strstr(page, "Default: all.\n") != NULL);

    char completion[2048] = "";
    f = fmemopen(completion, sizeof completion, "w");
    CHECK(f != NULL);
    if (f != NULL) {
        spx_opt_completion(&program, f);
        (void)fclose(f);
    }
    CHECK(strstr(completion, "--choice\t-\tone|two\tone two\tA choice\n") != NULL);
    CHECK(strstr(completion, "--unset\t-u\tone|once\tone once\tAnother\n") != NULL);
    CHECK(strstr(completion, "--no-on\t-\t-\t-\t") != NULL);
    CHECK(PARSE("--choice", "two", "-uonce") == SPX_OK && choice == SECOND_CHOICE && no_choice == 2);
    CHECK(strcmp(spx_opt_word(options[7].choices, 2), "once") == 0);
    CHECK(spx_opt_word(options[7].choices, SPX_NO_CHOICE) == NULL);

    /* the former name of another choice */
    CHECK(PARSE("--word", "once") == SPX_EUSAGE &&
          strstr(spx_err_text(&e), "--word once: is called --unset once now") != NULL);
    CHECK(PARSE("--word=one") == SPX_EUSAGE && strstr(spx_err_text(&e), "--unset one") != NULL);
    CHECK(PARSE("--word", "./once") == SPX_OK && PARSE("--word", "two") == SPX_OK);

    CHECK(PARSE("--number", "0") == SPX_EUSAGE && strstr(spx_err_text(&e), "outside") != NULL);
    CHECK(PARSE("--number", "5x") == SPX_EUSAGE);
    CHECK(PARSE("--number") == SPX_EUSAGE && strstr(spx_err_text(&e), "needs a value") != NULL);
    CHECK(PARSE("--choice") == SPX_EUSAGE && strstr(spx_err_text(&e), "--choice needs a value (one|two)") != NULL);
    CHECK(PARSE("-u") == SPX_EUSAGE && strstr(spx_err_text(&e), "-u needs a value (one|once)") != NULL);
    CHECK(PARSE("--real", "nan") == SPX_EUSAGE);
    CHECK(PARSE("--real", "") == SPX_EUSAGE);
    CHECK(PARSE("--bytes", "-1") == SPX_EUSAGE && PARSE("--bytes", "1e30T") == SPX_EUSAGE);
    CHECK(PARSE("--choice", "tw") == SPX_EUSAGE && strstr(spx_err_text(&e), "'tw' is not one of one|two") != NULL);
    CHECK(PARSE("--choice", "") == SPX_EUSAGE && PARSE("--choice", "one|two") == SPX_EUSAGE);
    CHECK(PARSE("--flag=1") == SPX_EUSAGE);
    CHECK(PARSE("--nunber", "3") == SPX_EUSAGE && strstr(spx_err_text(&e), "--number") != NULL);
    CHECK(PARSE("-q") == SPX_EUSAGE);
    CHECK(PARSE("--") == SPX_OK && nfile == 0);
    double v[3];
    size_t n;
    memset(&e, 0, sizeof e);
    CHECK(spx_parse_doubles("1,2.5,-3", ',', "x", "A,B,C", 3, v, &n, &e) == SPX_OK && n == 3 && v[2] == -3);
    CHECK(spx_parse_doubles("1,2,3,4", ',', "x", "A,B,C", 3, v, &n, &e) == SPX_EUSAGE);
    CHECK(spx_parse_doubles("1,,2", ',', "x", "A,B,C", 3, v, &n, &e) == SPX_EUSAGE);
    memset(&e, 0, sizeof e);
    CHECK(spx_parse_doubles("1:2", ',', "x", "A,B,C", 3, v, &n, &e) == SPX_EUSAGE);
    CHECK(strcmp(spx_err_text(&e), "x: '1:2' is not A,B,C") == 0);
    size_t from, count;
    memset(&e, 0, sizeof e);
    CHECK(spx_parse_slice("12", "x", 20, &from, &count, &e) == SPX_EUSAGE && strstr(spx_err_text(&e), "12:13") != NULL);
    memset(&e, 0, sizeof e);
    CHECK(spx_parse_slice("1-5:", "x", 20, &from, &count, &e) == SPX_EUSAGE &&
          strstr(spx_err_text(&e), "FIRST:LAST") != NULL);
    CHECK(spx_parse_slice("3:", "x", 20, &from, &count, NULL) == SPX_OK && from == 3 && count == 17);
    CHECK(command("file -n 3 -x", "test file -x") && command("-n3 file", "test file"));
    CHECK(command("--number 3 --word -n", "test --word -n") && command("--numb=3 --no-on x", "test --no-on x"));
    CHECK(command("-xn3 -xn 3 -xu one", "test -x -x -xu one") &&
          command("-uone -l n3 - -:/a", "test -uone -l n3 - -:/a"));
    CHECK(command("--word=a:1 --word b:2,3 c:4 --wor c", "test --word=a --word b c:4 --wor c"));
    CHECK(command("--unknown -q -n", "test --unknown -q") && command("-x -- -n 3", "test -x -- -n 3"));
    spx_opt_free(&program);
    return bad;
}
