/* Checks expressions: values, precedence, refusals; and wavelengths in air and vacuum. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "num/expr.h"
#include "num/wave.h"

static int failed;

static void value(const char *text, double x, double want)
{
    spx_expr ex;
    spx_err e = {0};
    if (spx_expr_parse(text, &ex, &e) != SPX_OK) {
        printf("'%s' refused: %s\n", text, spx_err_text(&e));
        failed = 1;
        return;
    }
    double got = spx_expr_eval(&ex, x);
    if (!(fabs(got - want) <= 1e-14 * fabs(want)) && !(isnan(got) && isnan(want)) && got != want) {
        printf("'%s' at %g: %.17g, want %.17g\n", text, x, got, want);
        failed = 1;
    }
}

static void refused(const char *text, const char *why)
{
    spx_expr ex;
    spx_err e = {0};
    if (spx_expr_parse(text, &ex, &e) != SPX_EUSAGE || !strstr(spx_err_text(&e), why)) {
        printf("'%.60s': '%s', want '%s'\n", text, spx_err_text(&e), why);
        failed = 1;
    }
}

static void expressions(void)
{
    char text[4096];
    value("x/1.55", 6200, 4000);
    value(" 1000 + 2*x ", 5000, 11000);
    value("-x^2", 3, -9);
    value("2^3^2", 0, 512);
    value("2**-1", 0, 0.5);
    value("2*-x", 3, -6);
    value("1-2-3", 0, -4);
    value("8/4/2", 0, 1);
    value("(1+2)*(3-4)", 0, -3);
    value("sqrt(x)+exp(0)+log(1)+ln(1)+log10(100)+abs(-3)", 16, 10);
    value("min(x,2)+max(x,7)*pi", 5, 2 + 7 * 3.14159265358979323846);
    value(".5e1+1.E2", 0, 105);
    value("+x", 2, 2);
    value("1/(x-2)", 2, INFINITY);
    value("log(0-x)", 2, NAN);

    refused("", "missing");
    refused("1+", "missing");
    refused("(x", "')' expected");
    refused("x)", "unexpected");
    refused("1 2", "unexpected");
    refused("2x", "unexpected");
    refused("0x10", "not a number");
    refused("1e999", "not a number");
    refused("inf", "unknown name");
    refused("nan", "unknown name");
    refused("system(1)", "unknown name");
    refused("__import__('os')", "expected");
    refused("x;x", "unexpected");
    refused("x,x", "unexpected");
    refused("min(1)", "',' expected");
    refused("sqrt 2", "'(' expected");
    refused("sqrt(1,2)", "')' expected");
    refused("a\"$(id)`", "unknown name");
    refused("\xff\xfe", "expected");
    refused("%s%n", "expected");
    refused(".", "not a number");
    memset(text, '(', 4095);
    text[4095] = 0;
    refused(text, "deep");
    memset(text, '-', 4095);
    refused(text, "deep");
    for (int i = 0; i < 2000; i++)
        memcpy(text + 2 * i, "x+", 3);
    refused(text, "too long");
}

static void wavelengths(void)
{
    /* Ciddor's formula; (n-1) 10^5 of dry standard air is 27.6 to 27.8 at 5890 A, and D1 is 5895.924 in air, 5897.558
     * in vacuum (NIST). */
    if (fabs(spx_air_to_vacuum(5895.924) - 5897.558) > 1e-3) {
        printf("Na D1 in vacuum: %.4f\n", spx_air_to_vacuum(5895.924));
        failed = 1;
    }
    for (double w = 2001; w < 30000; w *= 1.003) {
        double back = spx_air_to_vacuum(spx_vacuum_to_air(w));
        if (fabs(back / w - 1) > 1e-14) {
            printf("vacuum %.6f, to air and back %.10f\n", w, back);
            failed = 1;
        }
    }
    if (spx_vacuum_to_air(1500) != 1500 || spx_air_to_vacuum(1500) != 1500) {
        puts("below 2000 Angstrom nothing is converted");
        failed = 1;
    }
}

int main(void)
{
    expressions();
    wavelengths();
    return failed;
}
