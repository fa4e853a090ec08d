/* Provides expressions of one variable: recursive-descent parser to reverse Polish steps, and their evaluation
 * (num/expr.h). */
#include "num/expr.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    OP_NUM,
    OP_X,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_POW,
    OP_NEG,
    OP_SQRT,
    OP_EXP,
    OP_LOG,
    OP_LOG10,
    OP_ABS,
    OP_MIN,
    OP_MAX
};

static const struct {
    const char *name;
    int op, nargs;
} functions[] = {{"sqrt", OP_SQRT, 1},   {"exp", OP_EXP, 1}, {"log", OP_LOG, 1}, {"ln", OP_LOG, 1},
                 {"log10", OP_LOG10, 1}, {"abs", OP_ABS, 1}, {"min", OP_MIN, 2}, {"max", OP_MAX, 2}};

/* Limit of nesting: the parser recurses. */
enum { MAX_DEPTH = 40 };

typedef struct {
    const char *text, *p;
    spx_expr *out;
    spx_err *e;
    int depth;
} parser;

static spx_status sum(parser *s);

static spx_status wrong(parser *s, const char *what)
{
    return spx_fail(s->e, SPX_EUSAGE, "expression '%.100s': %s at position %d", s->text, what,
                    (int)(s->p - s->text) + 1);
}

static spx_status emit(parser *s, int op, double value)
{
    if (s->out->n == SPX_EXPR_MAX)
        return wrong(s, "too long");
    s->out->step[s->out->n].op = op;
    s->out->step[s->out->n++].value = value;
    return SPX_OK;
}

/* Skips blanks; consumes the next character and returns 1 when it is `c`. */
static int accept_char(parser *s, char c)
{
    while (*s->p == ' ' || *s->p == '\t')
        s->p++;
    if (*s->p != c || c == 0)
        return 0;
    s->p++;
    return 1;
}

static spx_status parse_number(parser *s)
{
    /* decimal numbers only: strtod() alone would accept inf, nan and hexadecimal */
    char *end;
    if (s->p[0] == '0' && (s->p[1] == 'x' || s->p[1] == 'X'))
        return wrong(s, "not a number");
    double v = strtod(s->p, &end);
    if (end == s->p || !isfinite(v))
        return wrong(s, "not a number");
    s->p = end;
    return emit(s, OP_NUM, v);
}

static spx_status name(parser *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s->p[n]))
        n++;
    if (n == 1 && (*s->p == 'x')) {
        s->p++;
        return emit(s, OP_X, 0);
    }
    if (n == 2 && !strncmp(s->p, "pi", 2)) {
        s->p += 2;
        return emit(s, OP_NUM, 3.14159265358979323846);
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strlen(functions[i].name) != n || strncmp(s->p, functions[i].name, n))
            continue;
        s->p += n;
        if (!accept_char(s, '('))
            return wrong(s, "'(' expected");
        for (int k = 0; k < functions[i].nargs; k++) {
            if (k && !accept_char(s, ','))
                return wrong(s, "',' expected");
            spx_status st = sum(s);
            if (st != SPX_OK)
                return st;
        }
        if (!accept_char(s, ')'))
            return wrong(s, "')' expected");
        return emit(s, functions[i].op, 0);
    }
    return wrong(s, "unknown name (known: x pi sqrt exp log ln log10 abs min max)");
}

static spx_status primary(parser *s)
{
    if (accept_char(s, '(')) {
        spx_status st = sum(s);
        if (st != SPX_OK)
            return st;
        return accept_char(s, ')') ? SPX_OK : wrong(s, "')' expected");
    }
    if (isdigit((unsigned char)*s->p) || *s->p == '.')
        return parse_number(s);
    if (isalpha((unsigned char)*s->p))
        return name(s);
    return wrong(s, *s->p ? "number, x, function or '(' expected" : "something is missing");
}

/* Parses a sign or a power: -x^2 is -(x^2); 2^-1 is allowed, and 2^3^2 = 2^(3^2). */
static spx_status parse_factor(parser *s)
{
    spx_status st;
    if (++s->depth > MAX_DEPTH)
        return wrong(s, "nested too deeply");
    if (accept_char(s, '-')) {
        st = parse_factor(s);
        if (st == SPX_OK)
            st = emit(s, OP_NEG, 0);
    } else if (accept_char(s, '+')) {
        st = parse_factor(s);
    } else {
        st = primary(s);
        if (st == SPX_OK && (accept_char(s, '^') || (*s->p == '*' && s->p[1] == '*' && (s->p += 2) != NULL))) {
            st = parse_factor(s);
            if (st == SPX_OK)
                st = emit(s, OP_POW, 0);
        }
    }
    s->depth--;
    return st;
}

static spx_status product(parser *s)
{
    spx_status st = parse_factor(s);
    while (st == SPX_OK) {
        int op = accept_char(s, '*') ? OP_MUL : accept_char(s, '/') ? OP_DIV : 0;
        if (!op)
            break;
        st = parse_factor(s);
        if (st == SPX_OK)
            st = emit(s, op, 0);
    }
    return st;
}

static spx_status sum(parser *s)
{
    spx_status st = product(s);
    while (st == SPX_OK) {
        int op = accept_char(s, '+') ? OP_ADD : accept_char(s, '-') ? OP_SUB : 0;
        if (!op)
            break;
        st = product(s);
        if (st == SPX_OK)
            st = emit(s, op, 0);
    }
    return st;
}

spx_status spx_expr_parse(const char *text, spx_expr *x, spx_err *e)
{
    parser s = {.text = text, .p = text, .out = x, .e = e, .depth = 0};
    x->n = 0;
    spx_status st = sum(&s);
    if (st != SPX_OK)
        return st;
    accept_char(&s, 0);
    return *s.p ? wrong(&s, "unexpected character") : SPX_OK;
}

double spx_expr_eval(const spx_expr *ex, double x)
{
    double stack[SPX_EXPR_MAX];
    int n = 0;
    for (int i = 0; i < ex->n; i++) {
        int op = ex->step[i].op;
        if (op <= OP_X) {
            stack[n++] = op == OP_X ? x : ex->step[i].value;
            continue;
        }
        double b = stack[n - 1];
        if (op <= OP_POW || op >= OP_MIN) {
            double a = stack[--n - 1];
            stack[n - 1] = op == OP_ADD   ? a + b
                           : op == OP_SUB ? a - b
                           : op == OP_MUL ? a * b
                           : op == OP_DIV ? a / b
                           : op == OP_POW ? pow(a, b)
                           : op == OP_MIN ? fmin(a, b)
                                          : fmax(a, b);
        } else {
            stack[n - 1] = op == OP_NEG     ? -b
                           : op == OP_SQRT  ? sqrt(b)
                           : op == OP_EXP   ? exp(b)
                           : op == OP_LOG   ? log(b)
                           : op == OP_LOG10 ? log10(b)
                                            : fabs(b);
        }
    }
    return n ? stack[n - 1] : NAN;
}
