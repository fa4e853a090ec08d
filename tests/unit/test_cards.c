/* Checks FITS cards: values as the FITS standard writes them, round trips, long strings, HIERARCH, drop. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fits/cards.h"

static int failures;

static void expect(int ok, const char *what, const spx_cards *h)
{
    if (ok)
        return;
    failures++;
    printf("%s: not as expected; header:\n", what);
    for (size_t i = 0; i < h->n; i++)
        printf("  [%.80s]\n", h->cards + i * 80);
}

static void reading(void)
{
    static const char *const cards[] = {
        "SIMPLE  =                    T / conforms",
        "BITPIX  =                  -32",
        "EXPTIME =  1.5D3 / seconds",
        "GAIN    = -1.25E-2/no blank",
        "OBJECT  = 'O''Neil ' / quote",
        "EMPTY   = ''",
        "FULL    = '12345678901234567890123456789012345678901234567890123456789012345678'",
        "OPEN    = 'no end",
        "LONG    = 'abc&'",
        "CONTINUE  'def&' / c",
        "CONTINUE  'ghi   '",
        "HEX     = 0x10",
        "NANVAL  = NAN",
        "HUGE    = 1E999",
        "BIG     = 123456789012345678901234567890",
        "WHOLE   = 2.0",
        "MOST    =  9223372036854775807",
        "LEAST   = -9223372036854775808",
        "BEYOND  =  9223372036854775808",
        "TWO     = 12 34",
        "COMMENT = 'not a value'",
        "NOVALUE   text",
        "UNDEF   =                      / nothing",
        "HIERARCH ESO DET CHIP = 7 / long",
        "EXPTIME = 3.0",
    };
    spx_cards h = {0};
    spx_err e = {0};
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
        if (spx_cards_append(&h, cards[i], &e) != SPX_OK) {
            printf("append: %s\n", spx_err_text(&e));
            exit(1);
        }
    double d = 99.0;
    long l = 99;
    int b = 99;
    char s[200] = "unchanged";
    expect(spx_cards_bool(&h, "SIMPLE", &b) && b == 1, "SIMPLE", &h);
    expect(spx_cards_int(&h, "BITPIX", &l) && l == -32, "BITPIX", &h);
    expect(spx_cards_int(&h, "bitpix", &l) && l == -32, "lower case", &h);
    expect(spx_cards_double(&h, "EXPTIME", &d) && d == 1500.0, "D exponent, first card wins", &h);
    expect(spx_cards_double(&h, "GAIN", &d) && d == -0.0125, "no blank before the comment", &h);
    expect(spx_cards_string(&h, "OBJECT", s, sizeof s) && strcmp(s, "O'Neil") == 0, "doubled quote", &h);
    expect(spx_cards_string(&h, "EMPTY", s, sizeof s) && s[0] == 0, "empty string", &h);
    expect(spx_cards_string(&h, "FULL", s, sizeof s) && strlen(s) == 68, "full card", &h);
    expect(spx_cards_string(&h, "FULL", s, 5) && strcmp(s, "1234") == 0, "cut", &h);
    expect(spx_cards_string(&h, "OPEN", s, sizeof s) && strcmp(s, "no end") == 0, "no closing quote", &h);
    expect(spx_cards_string(&h, "LONG", s, sizeof s) && strcmp(s, "abcdefghi") == 0, "CONTINUE", &h);
    expect(spx_cards_int(&h, "WHOLE", &l) && l == 2, "2.0 is an integer", &h);
    expect(spx_cards_int(&h, "MOST", &l) && l == INT64_MAX, "largest integer", &h);
    expect(spx_cards_int(&h, "LEAST", &l) && l == INT64_MIN, "smallest integer", &h);
    expect(spx_cards_int(&h, "ESO DET CHIP", &l) && l == 7, "HIERARCH", &h);
    d = 99.0;
    l = 99;
    strcpy(s, "unchanged");
    expect(!spx_cards_double(&h, "HEX", &d) && !spx_cards_double(&h, "NANVAL", &d) && !spx_cards_double(&h, "HUGE", &d),
           "no number", &h);
    expect(!spx_cards_int(&h, "BIG", &l) && !spx_cards_int(&h, "GAIN", &l), "no integer", &h);
    expect(!spx_cards_int(&h, "BEYOND", &l), "integer that does not fit", &h);
    expect(!spx_cards_int(&h, "TWO", &l) && !spx_cards_double(&h, "TWO", &d), "numbers with a blank inside", &h);
    expect(!spx_cards_double(&h, "UNDEF", &d) && !spx_cards_double(&h, "ABSENT", &d), "no value", &h);
    expect(!spx_cards_string(&h, "NOVALUE", s, sizeof s) && !spx_cards_string(&h, "BITPIX", s, sizeof s), "no string",
           &h);
    expect(!spx_cards_double(&h, "OBJECT", &d), "a string is no number", &h);
    expect(d == 99.0 && l == 99 && strcmp(s, "unchanged") == 0, "outputs untouched", &h);
    spx_cards_free(&h);
}

static void writing(void)
{
    spx_cards h = {0}, copy = {0};
    spx_err e = {0};
    double d = 0.0,
           values[] = {0.0, -0.0, 0.1, 1.0 / 3.0, 6.02e23, -1e-300, 5e-324, 123456789.0, 1.7976931348623157e308};
    srand(11);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        expect(spx_cards_set_double(&h, "VALUE", values[i], "a comment", &e) == SPX_OK, "set double", &h);
        expect(spx_cards_double(&h, "VALUE", &d) && d == values[i], "double reads back", &h);
    }
    for (int i = 0; i < 1000; i++) {
        double v = ldexp((double)rand() / RAND_MAX - 0.5, rand() % 400 - 200);
        expect(spx_cards_set_double(&h, "VALUE", v, NULL, &e) == SPX_OK && spx_cards_double(&h, "VALUE", &d) && d == v,
               "random double (seed 11)", &h);
    }
    expect(h.n == 1, "replaced, not appended", &h);
    expect(spx_cards_set_double(&h, "VALUE", NAN, NULL, &e) == SPX_EBUG, "NaN refused", &h);
    spx_err_clear(&e);
    expect(spx_cards_set_int(&h, "toolongkey", 5, "c", &e) == SPX_OK &&
               memcmp(h.cards + 80, "HIERARCH TOOLONGKEY = 5", 23) == 0,
           "long keyword", &h);
    expect(spx_cards_set_int(&h, "A=B", 5, "c", &e) == SPX_EBUG, "bad keyword", &h);
    spx_err_clear(&e);
    spx_cards_drop(&h, "TOOLONGKEY");
    expect(h.n == 1, "drop of a long keyword", &h);
    expect(spx_cards_set_bool(&h, "FLAG", 1, "yes", &e) == SPX_OK && h.cards[80 + 29] == 'T', "T in column 30", &h);
    expect(spx_cards_set_int(&h, "COUNT", -12, NULL, &e) == SPX_OK && memcmp(h.cards + 2 * 80 + 27, "-12", 3) == 0,
           "integer ends in column 30", &h);
    expect(spx_cards_set_string(&h, "NAME", "x", "short", &e) == SPX_OK &&
               memcmp(h.cards + 3 * 80, "NAME    = 'x       '           / short", 38) == 0,
           "short string", &h);
    /* every length, with quotes, read back; replaced by a shorter one leaves no CONTINUE behind */
    char text[400], back[400];
    for (size_t n = 0; n < sizeof text - 1; n++) {
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(rand() % 5 == 0 ? '\'' : 'a' + rand() % 26);
        text[n] = 0;
        expect(spx_cards_set_string(&h, "NAME", text, "comment", &e) == SPX_OK &&
                   spx_cards_string(&h, "NAME", back, sizeof back) && strcmp(back, text) == 0,
               "string of any length (seed 11)", &h);
        if (n == 300) {
            expect(spx_cards_set_string(&h, "LAST", "end", NULL, &e) == SPX_OK, "append behind", &h);
            expect(spx_cards_copy(&copy, &h, &e) == SPX_OK && copy.n == h.n, "copy", &h);
            spx_cards_drop(&copy, "NAME");
            expect(copy.n == 4, "drop takes CONTINUE cards along", &copy);
        }
    }
    expect(spx_cards_set_string(&h, "NAME", "s", NULL, &e) == SPX_OK && h.n == 5, "shorter again", &h);
    expect(spx_cards_set_string(&h, "NAME", "caf\xc3\xa9", NULL, &e) == SPX_OK &&
               spx_cards_string(&h, "NAME", back, sizeof back) && strcmp(back, "caf??") == 0,
           "no ASCII", &h);
    spx_cards_drop(&h, "C*");
    expect(h.n == 4 && !spx_cards_int(&h, "COUNT", &(long){0}), "drop by beginning", &h);
    char longer[100];
    memset(longer, 'x', 81);
    longer[81] = 0;
    expect(spx_cards_append(&h, longer, &e) == SPX_EBUG, "81 characters", &h);
    spx_cards_free(&h);
    spx_cards_free(&copy);
}

int main(void)
{
    reading();
    writing();
    return failures != 0;
}
