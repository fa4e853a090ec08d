/* Provides FITS header cards: parses and formats values, CONTINUE and HIERARCH conventions (fits/cards.h). */
#include "fits/cards.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { CARD = 80, NAME = 8 };

/* 1 when the card has keyword `key`. Longer names than 8 characters are in the HIERARCH convention (`HIERARCH long name
 * = value`). *value gets the offset behind the `=`, or -1 when the card has none. */
static int card_is(const char *card, const char *key, size_t nkey, int *value)
{
    *value = -1;
    if (nkey <= NAME) {
        for (size_t i = 0; i < NAME; i++)
            if (card[i] != (i < nkey ? (char)toupper((unsigned char)key[i]) : ' '))
                return 0;
        if (card[8] == '=' && card[9] == ' ')
            *value = 10;
        return 1;
    }
    if (memcmp(card, "HIERARCH ", 9) != 0)
        return 0;
    size_t at = 9;
    while (at < CARD && card[at] == ' ')
        at++;
    for (size_t i = 0; i < nkey; i++, at++)
        if (at >= CARD || card[at] != (char)toupper((unsigned char)key[i]))
            return 0;
    while (at < CARD && card[at] == ' ')
        at++;
    if (at >= CARD || card[at] != '=')
        return 0;
    *value = (int)at + 1;
    return 1;
}

static size_t card_find(const spx_cards *h, const char *key, size_t from, int *value)
{
    size_t nkey = strlen(key);
    for (size_t i = from; i < h->n; i++)
        if (card_is(h->cards + i * CARD, key, nkey, value))
            return i;
    return h->n;
}

/* Value field of a card without its comment, for all types but strings; 0 when the card has no value. Blanks around the
 * value do not count; within it they end what can be read as one value (FITS standard 4.0, 4.2.3 and 4.2.4). */
static int card_token(const spx_cards *h, const char *key, char token[CARD + 1])
{
    int at;
    size_t i = card_find(h, key, 0, &at);
    if (i == h->n || at < 0)
        return 0;
    const char *card = h->cards + i * CARD;
    size_t n = 0;
    while (at < CARD && card[at] == ' ')
        at++;
    for (; at < CARD && card[at] != '/'; at++)
        token[n++] = card[at];
    while (n > 0 && token[n - 1] == ' ')
        n--;
    token[n] = 0;
    return n > 0 && token[0] != '\'';
}

int spx_cards_double(const spx_cards *h, const char *key, double *out)
{
    char t[CARD + 1], *end;
    if (!card_token(h, key, t))
        return 0;
    /* FITS allows D as the exponent letter, but none of what strtod() reads besides decimal numbers. */
    for (char *c = t; *c; c++) {
        if (*c == 'D' || *c == 'd')
            *c = 'E';
        if (strchr("0123456789+-.eE", *c) == NULL)
            return 0;
    }
    double v = strtod(t, &end);
    if (*end || !isfinite(v))
        return 0;
    *out = v;
    return 1;
}

int spx_cards_int(const spx_cards *h, const char *key, long *out)
{
    char t[CARD + 1], *end;
    if (!card_token(h, key, t))
        return 0;
    if (strspn(t, "+-0123456789") == strlen(t)) {
        errno = 0;
        long v = strtol(t, &end, 10);
        if (*end || errno != 0)
            return 0;
        *out = v;
        return 1;
    }
    double v;
    if (!spx_cards_double(h, key, &v) || v != floor(v) || fabs(v) > 9007199254740992.0)
        return 0;
    *out = (long)v;
    return 1;
}

int spx_cards_bool(const spx_cards *h, const char *key, int *out)
{
    char t[CARD + 1];
    if (!card_token(h, key, t) || (strcmp(t, "T") != 0 && strcmp(t, "F") != 0))
        return 0;
    *out = t[0] == 'T';
    return 1;
}

/* Appends the quoted text that starts at or after card[at] to out at *n. 0: there is no quoted text. */
static int card_text(const char *card, int at, char *out, size_t size, size_t *n)
{
    while (at < CARD && card[at] == ' ')
        at++;
    if (at >= CARD || card[at] != '\'')
        return 0;
    for (at++; at < CARD; at++) {
        if (card[at] == '\'') {
            if (at + 1 >= CARD || card[at + 1] != '\'')
                return 1;
            at++;
        }
        if (*n + 1 < size)
            out[(*n)++] = card[at];
    }
    return 1; /* the closing quote is missing: FITS readers accept the rest of the card */
}

int spx_cards_string(const spx_cards *h, const char *key, char *out, size_t size)
{
    int at;
    size_t i = card_find(h, key, 0, &at), n = 0;
    if (i == h->n || at < 0 || size == 0)
        return 0;
    const char *card = h->cards + i * CARD;
    while (at < CARD && card[at] == ' ')
        at++;
    if (at >= CARD || card[at] != '\'')
        return 0;
    card_text(card, at, out, size, &n);
    /* long string: ends with & and goes on in CONTINUE cards */
    while (n > 0 && out[n - 1] == '&' && i + 1 < h->n && memcmp(card + CARD, "CONTINUE  ", 10) == 0) {
        i++;
        card += CARD;
        n--;
        if (!card_text(card, 10, out, size, &n)) {
            out[n++] = '&';
            break;
        }
    }
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = 0;
    return 1;
}

/* Number of CONTINUE cards after card i. */
static size_t continued(const spx_cards *h, size_t i)
{
    size_t n = 0;
    while (i + 1 + n < h->n && memcmp(h->cards + (i + 1 + n) * CARD, "CONTINUE  ", 10) == 0)
        n++;
    return n;
}

/* Replaces cards [at, at+nold) by nnew cards. */
static spx_status splice(spx_cards *h, size_t at, size_t nold, const char *cards, size_t nnew, spx_err *e)
{
    size_t n = h->n - nold + nnew;
    if (nnew == nold) {
        memcpy(h->cards + at * CARD, cards, nnew * CARD);
        return SPX_OK;
    }
    char *new = spx_alloc2(n ? n : 1, CARD, 1, e);
    if (new == NULL)
        return SPX_EIO;
    if (at)
        memcpy(new, h->cards, at * CARD);
    memcpy(new + at *CARD, cards, nnew * CARD);
    if (at + nold < h->n)
        memcpy(new + (at + nnew) * CARD, h->cards + (at + nold) * CARD, (h->n - at - nold) * CARD);
    spx_free(h->cards);
    h->cards = new;
    h->n = n;
    return SPX_OK;
}

/* Writes `KEYWORD = ` into a blank card; returns the length used, 0 when the name is no keyword. */
static size_t card_start(char *card, const char *key)
{
    size_t n = strlen(key);
    int standard = n <= NAME;
    memset(card, ' ', CARD);
    if (n == 0 || n > 40)
        return 0;
    for (size_t i = 0; i < n; i++) {
        int c = toupper((unsigned char)key[i]);
        if (!isalnum(c) && c != '-' && c != '_' && !(c == ' ' && !standard && i > 0))
            return 0;
        card[(standard ? 0 : 9) + i] = (char)c;
    }
    if (standard) {
        card[8] = '=';
        return 10;
    }
    memcpy(card, "HIERARCH", 8);
    card[9 + n + 1] = '=';
    return 9 + n + 3;
}

static void card_comment(char *card, size_t at, const char *comment)
{
    if (comment == NULL || !*comment || at + 3 >= CARD)
        return;
    card[at + 1] = '/';
    for (size_t i = at + 3; i < CARD && *comment; i++, comment++)
        card[i] = *comment >= 32 && *comment < 127 ? *comment : '?';
}

static spx_status bad_key(const char *key, spx_err *e)
{
    return spx_fail(e, SPX_EBUG, "'%s' cannot be a FITS keyword", key);
}

/* Sets one value, given as text, in the header; right justified to column 30 as fixed format asks. */
static spx_status set_token(spx_cards *h, const char *key, const char *token, const char *comment, spx_err *e)
{
    char card[CARD];
    int value;
    size_t n = strlen(token), at = card_start(card, key);
    if (at == 0)
        return bad_key(key, e);
    if (at == 10 && n < 20)
        at = 30 - n;
    if (at + n > CARD)
        return spx_fail(e, SPX_EBUG, "%s = %s does not fit a FITS card", key, token);
    memcpy(card + at, token, n);
    card_comment(card, at + n, comment);
    size_t i = card_find(h, key, 0, &value);
    return splice(h, i, i < h->n ? 1 + continued(h, i) : 0, card, 1, e);
}

spx_status spx_cards_set_double(spx_cards *h, const char *key, double value, const char *comment, spx_err *e)
{
    char t[40];
    if (!isfinite(value))
        return spx_fail(e, SPX_EBUG, "FITS keyword %s: a value that is not finite cannot be stored", key);
    for (int digits = 15; digits <= 17; digits++) { /* shortest text that reads back as the same number */
        snprintf(t, sizeof t, "%.*G", digits, value);
        if (strtod(t, NULL) == value)
            break;
    }
    if (strpbrk(t, ".E") == NULL)
        strcat(t, ".0");
    return set_token(h, key, t, comment, e);
}

spx_status spx_cards_set_int(spx_cards *h, const char *key, long value, const char *comment, spx_err *e)
{
    char t[32];
    snprintf(t, sizeof t, "%ld", value);
    return set_token(h, key, t, comment, e);
}

spx_status spx_cards_set_bool(spx_cards *h, const char *key, int value, const char *comment, spx_err *e)
{
    return set_token(h, key, value ? "T" : "F", comment, e);
}

spx_status spx_cards_set_string(spx_cards *h, const char *key, const char *value, const char *comment, spx_err *e)
{
    size_t nvalue = strlen(value), ncard = 0, capacity = 2 + nvalue / 30;
    int at_value;
    char *cards = spx_alloc2(capacity, CARD, 1, e);
    if (cards == NULL)
        return SPX_EIO;
    const char *v = value, *end = value + nvalue;
    do {
        char *card = cards + ncard * CARD;
        size_t at, first;
        if (ncard == 0) {
            at = card_start(card, key);
            if (at == 0) {
                spx_free(cards);
                return bad_key(key, e);
            }
        } else {
            memset(card, ' ', CARD);
            memcpy(card, "CONTINUE", 8);
            at = 10;
        }
        card[at++] = '\'';
        first = at;
        /* Space for the closing quote and, unless all of the rest fits, for the & in front of it. */
        size_t need = 0;
        for (const char *c = v; c < end; c++)
            need += *c == '\'' ? 2 : 1;
        size_t limit = at + need + 1 <= CARD ? CARD - 1 : CARD - 2;
        for (; v < end; v++) {
            size_t width = *v == '\'' ? 2 : 1;
            if (at + width > limit)
                break;
            card[at++] = *v >= 32 && *v < 127 ? *v : '?';
            if (width == 2)
                card[at++] = '\'';
        }
        if (v < end)
            card[at++] = '&';
        while (at < first + 8 && at < CARD - 1) /* fixed format: at least 8 characters */
            at++;
        card[at++] = '\'';
        ncard++;
        if (v == end) {
            if (ncard == 1 && at < 30)
                at = 30;
            card_comment(card, at, comment);
        }
    } while (v < end && ncard < capacity);
    size_t i = card_find(h, key, 0, &at_value);
    spx_status st = splice(h, i, i < h->n ? 1 + continued(h, i) : 0, cards, ncard, e);
    spx_free(cards);
    return st;
}

spx_status spx_cards_append(spx_cards *h, const char *card, spx_err *e)
{
    char c[CARD];
    size_t n = strlen(card);
    if (n > CARD)
        return spx_fail(e, SPX_EBUG, "a FITS card of %zu characters (80 fit): %.20s...", n, card);
    memset(c, ' ', CARD);
    memcpy(c, card, n);
    return splice(h, h->n, 0, c, 1, e);
}

void spx_cards_drop(spx_cards *h, const char *key)
{
    size_t nkey = strlen(key), to = 0;
    int any = nkey > 0 && key[nkey - 1] == '*', value;
    for (size_t i = 0; i < h->n; i++) {
        const char *card = h->cards + i * CARD;
        int match = any ? nkey - 1 <= NAME && memcmp(card, key, nkey - 1) == 0 : card_is(card, key, nkey, &value);
        if (match) {
            i += continued(h, i);
            continue;
        }
        if (to != i)
            memmove(h->cards + to * CARD, card, CARD);
        to++;
    }
    h->n = to;
}

spx_status spx_cards_copy(spx_cards *to, const spx_cards *from, spx_err *e)
{
    char *c = spx_alloc2(from->n ? from->n : 1, CARD, 1, e);
    if (c == NULL)
        return SPX_EIO;
    if (from->n)
        memcpy(c, from->cards, from->n * CARD);
    spx_free(to->cards);
    to->cards = c;
    to->n = from->n;
    return SPX_OK;
}

void spx_cards_keep_common(spx_cards *h, const spx_cards *other)
{
    size_t kept = 0;
    for (size_t i = 0; i < h->n; i++) {
        size_t k = 0;
        while (k < other->n && memcmp(h->cards + 80 * i, other->cards + 80 * k, 80) != 0)
            k++;
        if (k < other->n)
            memmove(h->cards + 80 * kept++, h->cards + 80 * i, 80);
    }
    h->n = kept;
}

void spx_cards_free(spx_cards *h)
{
    if (h == NULL)
        return;
    spx_free(h->cards);
    h->cards = NULL;
    h->n = 0;
}
