/* Provides parsers of numbers, lists and slices on options and in text files (base/parse.h). */
#include "base/parse.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

spx_status spx_parse_double(const char *s, const char *what, double *out, spx_err *e)
{
    char *end;
    double v = strtod(s, &end);
    if (end == s || *end != '\0' || !isfinite(v))
        return spx_fail(e, SPX_EUSAGE, "%s: '%s' is not a number", what, s);
    *out = v;
    return SPX_OK;
}

spx_status spx_parse_long(const char *s, const char *what, long *out, spx_err *e)
{
    char *end;
    errno = 0;
    long v = strtol(s, &end, 10);
    if (end == s || *end != '\0' || errno != 0)
        return spx_fail(e, SPX_EUSAGE, "%s: '%s' is not a whole number", what, s);
    *out = v;
    return SPX_OK;
}

spx_status spx_parse_bytes(const char *s, const char *what, size_t *out, spx_err *e)
{
    char *end;
    double v = strtod(s, &end), unit = 1;
    if (end != s) {
        switch (*end) {
        case 'k':
        case 'K':
            unit = 1024.;
            break;
        case 'M':
            unit = 1024. * 1024.;
            break;
        case 'G':
            unit = 1024. * 1024. * 1024.;
            break;
        case 'T':
            unit = 1024. * 1024. * 1024. * 1024.;
            break;
        default:
            break;
        }
        if (unit > 1)
            end++;
        if (strcmp(end, "iB") == 0 || strcmp(end, "B") == 0)
            end += strlen(end);
    }
    if (end == s || *end != '\0' || !(v >= 0) || v * unit > 9e18)
        return spx_fail(e, SPX_EUSAGE, "%s: '%s' is not a size such as 500M or 4G", what, s);
    *out = (size_t)(v * unit);
    return SPX_OK;
}

spx_status spx_parse_slice(const char *s, const char *what, size_t n, size_t *first, size_t *count, spx_err *e)
{
    const char *colon = strchr(s, ':');
    char word[32];
    long lo = 0, hi = n > LONG_MAX ? LONG_MAX : (long)n, most = hi;
    if (colon == NULL && spx_parse_long(s, what, &lo, NULL) == SPX_OK)
        return spx_fail(e, SPX_EUSAGE, "%s: '%s' is not FIRST:LAST: this one alone is %ld:%ld", what, s, lo, lo + 1);
    if (colon != NULL && (size_t)(colon - s) < sizeof word) {
        memcpy(word, s, (size_t)(colon - s));
        word[colon - s] = '\0';
    }
    if (colon == NULL || (size_t)(colon - s) >= sizeof word ||
        (word[0] != '\0' && spx_parse_long(word, what, &lo, NULL) != SPX_OK) ||
        (colon[1] != '\0' && spx_parse_long(colon + 1, what, &hi, NULL) != SPX_OK))
        return spx_fail(e, SPX_EUSAGE, "%s: '%s' is not FIRST:LAST, with whole numbers", what, s);
    if (lo < 0 || hi <= lo || hi > most)
        return spx_fail(e, SPX_EUSAGE, "%s: %s is not within 0:%zu (LAST is not included), or is empty", what, s, n);
    *first = (size_t)lo;
    *count = (size_t)(hi - lo);
    return SPX_OK;
}

spx_status spx_parse_doubles(const char *s, char sep, const char *what, const char *form, size_t max, double *out,
                             size_t *n, spx_err *e)
{
    *n = 0;
    for (const char *p = s;;) {
        const char *q = strchr(p, sep);
        size_t len = q != NULL ? (size_t)(q - p) : strlen(p);
        char word[64];
        int good = len > 0 && len < sizeof word && *n < max;
        if (good) {
            memcpy(word, p, len);
            word[len] = '\0';
            good = spx_parse_double(word, what, &out[*n], NULL) == SPX_OK;
        }
        if (!good && *n == max)
            return spx_fail(e, SPX_EUSAGE, "%s: '%s' is not %s: it has more than %zu numbers", what, s, form, max);
        if (!good)
            return spx_fail(e, SPX_EUSAGE, "%s: '%s' is not %s", what, s, form);
        ++*n;
        if (q == NULL)
            return SPX_OK;
        p = q + 1;
    }
}

spx_status spx_parse_rows(const char *s, const char *what, size_t n, unsigned char *mark, spx_err *e)
{
    for (const char *at = s; at != NULL;) {
        const char *comma = strchr(at, ',');
        const size_t len = comma != NULL ? (size_t)(comma - at) : strlen(at);
        char word[64];
        size_t first = 0, count = 1;
        long one = -1;
        if (len == 0 || len >= sizeof word)
            return spx_fail(e, SPX_EUSAGE, "%s: '%s' is no list such as 3,7,20:25", what, s);
        memcpy(word, at, len);
        word[len] = '\0';
        if (strchr(word, ':') != NULL) {
            const spx_status st = spx_parse_slice(word, what, n, &first, &count, e);
            if (st != SPX_OK)
                return st;
        } else if (spx_parse_long(word, what, &one, NULL) != SPX_OK || one < 0 || (size_t)one >= n) {
            return spx_fail(e, SPX_EUSAGE, "%s: '%s' of '%s' is none of 0 to %zu", what, word, s, n > 0 ? n - 1 : 0);
        } else {
            first = (size_t)one;
        }
        memset(mark + first, 1, count);
        at = comma != NULL ? comma + 1 : NULL;
    }
    return SPX_OK;
}
