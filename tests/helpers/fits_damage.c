/* fits_damage IN          prints the number of damages that the headers of its compressed images and tables can get
 * fits_damage IN N OUT    writes it with damage N: one card with one of the values below
 * fits_damage IN -SEED OUT  the same with 1 to 8 random bytes of one HDU's data changed
 * fits_damage IN bN OUT   the same with bit N of the file inverted
 * Exit status 0, or 1 with a message. */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CARD = 80, BLOCK = 2880, LARGEST = 8 << 20, MAX_HDU = 100 };

static const char *const value[] = {"0",
                                    "-1",
                                    "1",
                                    "3",
                                    "7",
                                    "16",
                                    "32",
                                    "1000",
                                    "65535",
                                    "2147483647",
                                    "4294967296",
                                    "9223372036854775807",
                                    "'RICE_1'",
                                    "'GZIP_1'",
                                    "'GZIP_2'",
                                    "'PLIO_1'",
                                    "'HCOMPRESS_1'",
                                    "'1PB(9)'",
                                    "'1QB(99999999)'",
                                    "'1PI(9)'",
                                    "'1D'",
                                    "'BLOCKSIZE'",
                                    "'SUBTRACTIVE_DITHER_1'",
                                    "'SUBTRACTIVE_DITHER_2'",
                                    "'NONE'",
                                    "1E308",
                                    "NaN"};
enum { NVALUE = sizeof value / sizeof *value };

static unsigned char file[LARGEST];
static size_t nfile, data_at[MAX_HDU], data_end[MAX_HDU], nhdu;

/* Cards whose values say how data are laid out or coded. */
static int matters(const unsigned char *card)
{
    static const char *const key[] = {"ZTILE",    "ZNAXIS", "ZBITPIX", "ZCMPTYPE", "ZVAL",    "ZNAME",   "ZQUANTIZ",
                                      "ZDITHER0", "ZSCALE", "ZZERO",   "ZBLANK",   "ZSIMPLE", "ZPCOUNT", "TFORM",
                                      "TFIELDS",  "PCOUNT", "THEAP",   "NAXIS",    "BZERO",   "BSCALE"};
    for (size_t k = 0; k < sizeof key / sizeof *key; k++) {
        const size_t n = strlen(key[k]);
        if (memcmp(card, key[k], n) == 0 && (card[n] == ' ' || isdigit(card[n])) && card[8] == '=')
            return 1;
    }
    return 0;
}

/* Number of damages of cards; damage `n` is done. HDUs that are found by the way go into data_at. */
static long cards(long n)
{
    long count = 0;
    for (size_t at = 0; at + BLOCK <= nfile;) {
        const size_t start = at;
        if (memcmp(file + at, "SIMPLE", 6) != 0 && memcmp(file + at, "XTENSION", 8) != 0) {
            at += BLOCK;
            continue;
        }
        int done = 0;
        for (; !done && at + CARD <= nfile; at += CARD) {
            done = memcmp(file + at, "END     ", 8) == 0;
            if (done || start == 0 || !matters(file + at))
                continue;
            for (int v = 0; v < NVALUE; v++)
                if (count++ == n) {
                    char text[2 * CARD];
                    snprintf(text, sizeof text, value[v][0] == '\'' ? "%.10s%-70s" : "%.10s%20s%50s",
                             (const char *)file + at, value[v], "");
                    memcpy(file + at, text, CARD);
                }
        }
        at = (at + BLOCK - 1) / BLOCK * BLOCK;
        if (nhdu > 0)
            data_end[nhdu - 1] = start;
        if (nhdu < MAX_HDU) {
            data_at[nhdu] = at;
            data_end[nhdu++] = nfile;
        }
    }
    return count;
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void bytes(uint64_t seed)
{
    uint64_t s = seed;
    size_t h = 0;
    do
        h = (size_t)(next(&s) % nhdu);
    while (data_end[h] <= data_at[h]);
    for (int k = 1 + (int)(next(&s) % 8); k > 0; k--) {
        const size_t at = data_at[h] + (size_t)(next(&s) % (data_end[h] - data_at[h]));
        const unsigned kind = (unsigned)(next(&s) % 4);
        file[at] = (unsigned char)(kind == 0   ? file[at] ^ 1u << next(&s) % 8
                                   : kind == 1 ? 0
                                   : kind == 2 ? 255
                                               : next(&s));
    }
}

static int write_file(const char *name)
{
    FILE *out = fopen(name, "wb");
    if (out == NULL || fwrite(file, 1, nfile, out) != nfile || fclose(out) != 0) {
        fprintf(stderr, "fits_damage: cannot write\n");
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    FILE *in = argc == 2 || argc == 4 ? fopen(argv[1], "rb") : NULL;
    nfile = in != NULL ? fread(file, 1, LARGEST, in) : 0;
    if (nfile == 0 || nfile == LARGEST) {
        fprintf(stderr, "fits_damage: no input\n");
        return 1;
    }
    fclose(in);
    if (argc == 2)
        return printf("%ld\n", cards(-1)) < 0;
    const int bit = argv[2][0] == 'b';
    const long n = strtol(argv[2] + bit, NULL, 10);
    if (bit && n >= 0 && (size_t)n / 8 < nfile) {
        file[n / 8] = (unsigned char)(file[n / 8] ^ 1 << n % 8);
        return write_file(argv[3]);
    }
    (void)cards(n >= 0 ? n : -1);
    if (n < 0 && nhdu > 1)
        bytes((uint64_t)-n);
    return write_file(argv[3]);
}
