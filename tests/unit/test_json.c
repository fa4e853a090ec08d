/* Checks texts and numbers of JSON: escapes, bytes that are not UTF-8, numbers that JSON has not. */
#include "base/json.h"

#include <math.h>
#include <string.h>

static int bad;

static void check(const char *got, const char *want)
{
    if (strcmp(got, want) != 0) {
        printf("%s instead of %s\n", got, want);
        bad = 1;
    }
}

static void check_string(const char *s, const char *want)
{
    char got[256] = "";
    FILE *f = fmemopen(got, sizeof got, "w");
    spx_json_string(f, s);
    (void)fclose(f);
    check(got, want);
}

int main(void)
{
    char got[256] = "";
    check_string("", "\"\"");
    check_string("a \"b\" \\ c/d", "\"a \\\"b\\\" \\\\ c/d\"");
    check_string("tab\tline\n\x7f", "\"tab\\u0009line\\u000a\\u007f\"");
    check_string("\xc3\x85 \xe2\x88\x92 \xf0\x9f\x8c\x9f", "\"\xc3\x85 \xe2\x88\x92 \xf0\x9f\x8c\x9f\"");
    /* Latin-1, an overlong form, a surrogate, beyond U+10FFFF, cut short */
    check_string("\xc5", "\"\\u00c5\"");
    check_string("\xc0\xaf", "\"\\u00c0\\u00af\"");
    check_string("\xed\xa0\x80", "\"\\u00ed\\u00a0\\u0080\"");
    check_string("\xf4\x90\x80\x80", "\"\\u00f4\\u0090\\u0080\\u0080\"");
    check_string("\xe2\x88", "\"\\u00e2\\u0088\"");
    FILE *f = fmemopen(got, sizeof got, "w");
    spx_json_number(f, 0.1, 17);
    fputc(' ', f);
    spx_json_number(f, (double)NAN, 17);
    fputc(' ', f);
    spx_json_number(f, -(double)INFINITY, 17);
    fputc(' ', f);
    spx_json_lines(f, "a\n\"b\"");
    spx_json_lines(f, "");
    (void)fclose(f);
    check(got, "0.10000000000000001 null null [\"a\", \"\\\"b\\\"\"][]");
    return bad;
}
