/* Provides FITS header cards: 80 characters each, verbatim, in order, without END. */
#ifndef SPX_CARDS_H
#define SPX_CARDS_H

#include <stddef.h>

#include "base/err.h"

typedef struct {
    size_t n;    /* number of cards */
    char *cards; /* n*80 characters, no terminator; owned */
} spx_cards;

/* Value of the first card with this keyword, as double or as text without quotes and trailing blanks (at most `size`
 * bytes; CONTINUE cards are joined; longer text is cut). 1 when found and readable, 0 otherwise (out unchanged).
 * Keywords are compared as FITS does, blank padded to 8; longer ones are found in the HIERARCH convention. */
int spx_cards_double(const spx_cards *h, const char *key, double *out);
int spx_cards_int(const spx_cards *h, const char *key, long *out);
int spx_cards_string(const spx_cards *h, const char *key, char *out, size_t size);
int spx_cards_bool(const spx_cards *h, const char *key, int *out);

/* Replaces the first card with this keyword (and its CONTINUE cards), or appends one. A string longer than a card
 * continues in CONTINUE cards; characters outside FITS's set become '?'. SPX_EBUG: not a keyword, or a value that is
 * not finite. */
spx_status spx_cards_set_double(spx_cards *h, const char *key, double value, const char *comment, spx_err *e);
spx_status spx_cards_set_int(spx_cards *h, const char *key, long value, const char *comment, spx_err *e);
spx_status spx_cards_set_string(spx_cards *h, const char *key, const char *value, const char *comment, spx_err *e);
spx_status spx_cards_set_bool(spx_cards *h, const char *key, int value, const char *comment, spx_err *e);

/* Appends one verbatim card (shorter text is blank padded, longer refused). */
spx_status spx_cards_append(spx_cards *h, const char *card, spx_err *e);
/* Drops every card with this keyword; a trailing '*' in `key` matches any ending. */
void spx_cards_drop(spx_cards *h, const char *key);
spx_status spx_cards_copy(spx_cards *to, const spx_cards *from, spx_err *e);
/* Drops the cards of h that `other` does not have alike. */
void spx_cards_keep_common(spx_cards *h, const spx_cards *other);
void spx_cards_free(spx_cards *h);

#endif
