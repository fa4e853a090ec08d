/* Fuzz target: command lines. Arguments, with 0 bytes between, are options of every kind: refused, or values within
 * their range; the record of them for the provenance has no line that an argument made up. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/opt.h"
#include "base/mem.h"
#include "base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int flag, on, given, has_first;
static long number, first;
static double real;
static size_t bytes;
static const char *word;
static enum { FIRST_CHOICE = -7, SECOND_CHOICE = 3 } choice;
static spx_opt_list list;

static const spx_opt options[] = {
    SPX_OPTION(FLAG, "flag", 'x', NULL, flag, "A flag"),
    SPX_OPTION(INT, "number", 'n', "N", number, "A number", .min = 1, .max = 10, .given = &given, .place = ""),
    SPX_OPTION(DOUBLE, "real", 'r', "X", real, "A real", .min = -5, .max = 5),
    SPX_OPTION(INT, "first", 0, "N", first, "Without it none", .given = &has_first, .no_default = 1),
    SPX_OPTION(BYTES, "bytes", 'b', "SIZE", bytes, "A size"),
    SPX_OPTION(STRING, "word", 'w', "WORD", word, "A word", .place = ":"),
    SPX_OPTION(CHOICE, "choice", 'c', NULL, choice, "A choice",
               .choices = SPX_CHOICES({"one", FIRST_CHOICE}, {"two", SECOND_CHOICE})),
    SPX_OPTION(LIST, "list", 'l', "ITEM", list, "Items", .absent = "all"),
    SPX_OPTION(FLAG, "on", 0, NULL, on, "On without it", .no = 1),
    {0},
};
static const spx_opt_program program = {"fuzz", "summary", "[OPTION...]", {options, NULL, NULL}, "fuzz file"};

static void need(int ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 40 };
    static char name[] = "fuzz";
    char *text = malloc(size + 1), *argv[MOST + 2] = {name}, *kept[MOST + 2];
    int argc = 1, nfile = 0;
    need(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    for (size_t at = 0; at <= size && argc <= MOST; at += strlen(text + at) + 1)
        argv[argc++] = text + at;
    memcpy(kept, argv, sizeof kept);
    flag = given = has_first = 0;
    on = 1;
    number = 1;
    first = 0;
    real = 0;
    bytes = 0;
    word = NULL;
    choice = SECOND_CHOICE;
    memset(&list, 0, sizeof list);

    spx_err e = {0};
    spx_text line = {0};
    (void)spx_opt_command(&program, argc, argv, 1, &line, &e);
    spx_text_free(&line);
    const spx_status st = spx_opt_parse(&program, argc, argv, &nfile, &e);
    need(st == SPX_OK || st == SPX_EUSAGE);
    if (st == SPX_OK) {
        need(nfile >= 0 && nfile < argc && number >= 1 && number <= 10 && real >= -5 && real <= 5);
        need((flag == 0 || flag == 1) && (on == 0 || on == 1) && (choice == FIRST_CHOICE || choice == SECOND_CHOICE));
        for (int i = 1; i <= nfile; i++) { /* each file is one of the arguments */
            int k = 1;
            while (k < argc && kept[k] != argv[i])
                k++;
            need(k < argc);
        }
        static const char *const none[] = {NULL};
        char *record = spx_opt_record(&program, none, 1, &e);
        need(record != NULL);
        size_t lines = 0;
        for (const char *p = record; *p != '\0'; p++)
            lines += *p == '\n';
        need(lines <= sizeof options / sizeof *options + list.n); /* a line for each item */
        spx_free(record);
    }
    spx_opt_free(&program);
    spx_err_clear(&e);
    free(text);
    return 0;
}
