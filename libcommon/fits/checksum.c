/* Checksums of FITS HDUs (fits/checksum.h). */
#include "fits/checksum.h"

#include <ctype.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t spx_fits_sum(uint32_t sum, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    while (n > 0) {
        /* words without carry first, two at a time: 2^28 of them do not overflow */
        const size_t piece = n < (size_t)1 << 30 ? n : (size_t)1 << 30;
        uint64_t high = 0, low = sum, v;
        size_t i = 0;
        for (; i + 8 <= piece; i += 8) {
            memcpy(&v, p + i, 8);
            v = be64toh(v);
            high += v >> 32;
            low += v & 0xffffffff;
        }
        if (i < piece) {
            unsigned char rest[8] = {0};
            memcpy(rest, p + i, piece - i);
            memcpy(&v, rest, 8);
            v = be64toh(v);
            high += v >> 32;
            low += v & 0xffffffff;
        }
        low += high;
        while (low >> 32 != 0)
            low = (low & 0xffffffff) + (low >> 32);
        sum = (uint32_t)low;
        p += piece;
        n -= piece;
    }
    return sum;
}

void spx_fits_sum_text(uint32_t sum, char text[17])
{
    static const char exclude[] = ":;<=>?@[\\]^_`";
    char ascii[16];
    const uint32_t value = ~sum;
    for (int i = 0; i < 4; i++) {
        int byte = (int)(value >> (24 - 8 * i) & 0xff), quotient = byte / 4 + '0';
        int ch[4] = {quotient + byte % 4, quotient, quotient, quotient};
        for (int again = 1; again;) {
            again = 0;
            for (int j = 0; j < 4; j += 2)
                if (strchr(exclude, ch[j]) != NULL || strchr(exclude, ch[j + 1]) != NULL) {
                    ch[j]++;
                    ch[j + 1]--;
                    again = 1;
                }
        }
        for (int j = 0; j < 4; j++)
            ascii[4 * j + i] = (char)ch[j];
    }
    for (int i = 0; i < 16; i++) /* rotated by one character: the value begins in the last byte of a word */
        text[i] = ascii[(i + 15) % 16];
    text[16] = 0;
}

/* 1 when DATASUM is there, with a value: a text of digits, or, against the standard, an integer. */
static int stored_sum(const spx_cards *h, uint32_t *sum)
{
    char text[72];
    long v = 0;
    if (spx_cards_string(h, "DATASUM", text, sizeof text)) {
        const char *p = text + strspn(text, " ");
        char *end;
        const unsigned long long u = strtoull(p, &end, 10);
        *sum = (uint32_t)u;
        return isdigit((unsigned char)*p) && end[strspn(end, " ")] == '\0' && u <= UINT32_MAX;
    }
    if (!spx_cards_int(h, "DATASUM", &v) || v < 0 || v > (long)UINT32_MAX)
        return 0;
    *sum = (uint32_t)v;
    return 1;
}

void spx_fits_note_sum(const spx_fits *f, spx_fits_hdu *h, uint64_t words)
{
    const size_t behind = h->data_at + h->nelem * sizeof(uint32_t);
    while (words >> 32 != 0)
        words = (words & 0xffffffff) + (words >> 32);
    h->datasum = spx_fits_sum((uint32_t)words, f->bytes + behind, h->end - behind);
    h->summed = 1;
}

/* The keyword that the bytes of an HDU disagree with, or NULL. */
static const char *wrong_sum(const spx_fits *f, const spx_fits_hdu *h)
{
    uint32_t want = 0;
    char text[72] = "";
    const int has_data = stored_sum(&h->header, &want);
    const int has_all = spx_cards_string(&h->header, "CHECKSUM", text, sizeof text) &&
                        text[strspn(text, " 0")] != '\0'; /* zeros: not known */
    if (!has_data && !has_all)
        return NULL;
    const uint32_t data = h->summed ? h->datasum : spx_fits_sum(0, f->bytes + h->data_at, h->end - h->data_at);
    /* 0 has two forms */
    if (has_data && data != want && !(data + 1 <= 1 && want + 1 <= 1))
        return "DATASUM";
    const uint32_t all = has_all ? spx_fits_sum(data, f->bytes + h->header_at, h->data_at - h->header_at) : 0;
    return all + 1 > 1 ? "CHECKSUM" : NULL;
}

spx_status spx_fits_check_sums(const spx_fits *f, spx_err *e)
{
    size_t n = 0, first = 0;
    const char *key = NULL;
    for (size_t i = 0; i < f->nhdu; i++) {
        const char *wrong = wrong_sum(f, &f->hdu[i]);
        if (wrong == NULL)
            continue;
        if (n++ == 0) {
            first = i;
            key = wrong;
        }
    }
    if (n == 0)
        return SPX_OK;
    char more[40] = "";
    if (n > 1)
        snprintf(more, sizeof more, ", and so in %zu more", n - 1);
    return spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, first), "copy the file again",
                       "its bytes disagree with %s%s: it was damaged, or changed without new sums", key, more);
}
