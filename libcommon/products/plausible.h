/* Provides the rules of plausibility: which input cannot be right, and what a program does about it. One table, which
 * the programs apply and specpipe(7) shows (specpipe-info --rules mdoc).
 *
 * Limits lie between what unusual but right input measures and what wrong input does; tests/plausible.bats has cases of
 * both. A rule that refuses ends the program with status 3, unless --allow names it. Any other warns and leaves a flag
 * in the product. */
#ifndef SPX_PLAUSIBLE_H
#define SPX_PLAUSIBLE_H

#include <stdio.h>

#include "app/opt.h"
#include "base/err.h"

typedef enum {
    SPX_RULE_CAMERA,
    SPX_RULE_CCD,
    SPX_RULE_UNIT,
    SPX_RULE_TRACES,
    SPX_RULE_FIBRES,
    SPX_RULE_HORIZON,
    SPX_RULE_POINTING,
    SPX_RULE_BUNDLES,
    SPX_RULE_LINES,
    SPX_RULE_BLANK,
    SPX_RULE_CHI2,
    SPX_RULE_SIGN,
    SPX_RULE_UNLIT,
    SPX_RULE_HITS,
    SPX_RULE_MISFIT,
    SPX_RULE_BINS,
    SPX_RULE_VARIANCE,
    SPX_RULE_FINITE,
    SPX_RULE_REPEATED,
    SPX_RULE_MEDIUM,
    SPX_RULE_FIT,
    SPX_RULE_NEGATIVE,
    SPX_RULE_EXPOSURES,
    SPX_RULE_ARMS,
    SPX_RULE_READNOISE,
    SPX_RULE_GAIN,
    SPX_RULES
} spx_rule_id;

typedef struct {
    const char *name;     /* word of messages, of --allow, and of the attribute `implausible` */
    const char *programs; /* that apply it, with blanks between */
    const char *measure;
    double lo, hi;      /* plausible values, -HUGE_VAL or HUGE_VAL: no limit */
    const char *limits; /* said instead of lo and hi; NULL: those */
    const char *flag;   /* what it leaves in the product; NULL: it refuses */
} spx_rule;

extern const spx_rule spx_rules[SPX_RULES];

/* 1 when a value, or NaN, lies beyond the limits of a rule. */
int spx_rule_broken(spx_rule_id rule, double value);

/* Rules that the values of --allow name, as a sum of 1 << rule. SPX_EUSAGE: no rule of this program, or one that does
 * not refuse. */
spx_status spx_rules_allow(const char *program, const spx_opt_list *names, unsigned *allowed, spx_err *e);

/* Names of the rules in a sum of 1 << rule, with blanks between, into text[size]. */
void spx_rules_names(unsigned rules, char *text, size_t size);

/* Prints the table, as text or in mdoc(7). */
void spx_rules_print(int mdoc, FILE *out);

/* The option --allow of a program that refuses something. */
#define SPX_OPTION_ALLOW(variable)                                                                                     \
    SPX_OPTION(LIST, "allow", 0, "RULE", variable,                                                                     \
               "Go on where this rule of PLAUSIBILITY in specpipe(7) refuses; repeatable")

#endif
