/* png_look FILE.png [RRGGBB...]: size of a picture and what is on it. The first line is
 *
 *     WIDTH HEIGHT COLOURS INK      pixels; different colours; per mille of pixels that are not white
 *
 * and for each colour follows a line "RRGGBB N X0 X1 Y0 Y1": pixels that have it within 2 of 255, and the box around
 * them, from the upper left corner. 8-bit grey, RGB, RGBA or palette, as cairo writes them, without interlacing. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "png_look: %s\n", what);
        exit(1);
    }
}

static uint32_t big_endian(const unsigned char *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* Paeth's predictor: PNG specification, 9.4. */
static int paeth(int a, int b, int c)
{
    const int p = a + b - c, pa = abs(p - a), pb = abs(p - b), pc = abs(p - c);
    return pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
}

static int ascending(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static const int channels[] = {1, 0, 3, 1, 2, 0, 4};
    must(argc >= 2, "usage: png_look FILE.png [RRGGBB...]");
    FILE *f = fopen(argv[1], "rb");
    must(f != NULL, "cannot be opened");
    unsigned char head[8], chunk[8], *packed = NULL, palette[768] = {0}, info[13];
    size_t npacked = 0;
    must(fread(head, 1, 8, f) == 8 && memcmp(head, "\211PNG\r\n\032\n", 8) == 0, "no PNG");
    memset(info, 0, sizeof info);
    while (fread(chunk, 1, 8, f) == 8) {
        const uint32_t n = big_endian(chunk);
        unsigned char *body = malloc((size_t)n + 4);
        must(body != NULL && fread(body, 1, (size_t)n + 4, f) == (size_t)n + 4, "breaks off");
        if (memcmp(chunk + 4, "IHDR", 4) == 0 && n == 13)
            memcpy(info, body, 13);
        if (memcmp(chunk + 4, "PLTE", 4) == 0 && n <= sizeof palette)
            memcpy(palette, body, n);
        if (memcmp(chunk + 4, "IDAT", 4) == 0) {
            must((packed = realloc(packed, npacked + n)) != NULL, "memory");
            memcpy(packed + npacked, body, n);
            npacked += n;
        }
        free(body);
    }
    fclose(f);
    const size_t width = big_endian(info), height = big_endian(info + 4);
    must(info[8] == 8 && info[9] <= 6 && channels[info[9]] > 0 && info[12] == 0 && width > 0 && height > 0,
         "kind of PNG");
    const size_t nc = (size_t)channels[info[9]], row = width * nc;
    uLongf size = (uLongf)((row + 1) * height);
    unsigned char *raw = malloc(size), *pixel = calloc(row * (height + 1), 1);
    uint32_t *colour = calloc(width * height, sizeof *colour);
    must(raw != NULL && pixel != NULL && colour != NULL, "memory");
    must(uncompress(raw, &size, packed, npacked) == Z_OK && size == (row + 1) * height, "damaged");
    /* row 0 of `pixel` is the one above the picture, of zeros */
    for (size_t y = 0; y < height; y++) {
        const unsigned char *from = raw + y * (row + 1), *up = pixel + y * row;
        unsigned char *to = pixel + (y + 1) * row;
        for (size_t i = 0; i < row; i++) {
            const int a = i >= nc ? to[i - nc] : 0, b = up[i], c = i >= nc ? up[i - nc] : 0;
            const int guess[] = {0, a, b, (a + b) / 2, paeth(a, b, c)};
            must(from[0] <= 4, "damaged");
            to[i] = (unsigned char)(from[1 + i] + guess[from[0]]);
        }
        for (size_t x = 0; x < width; x++) {
            const unsigned char *v = to + x * nc;
            const unsigned char *rgb = info[9] == 3 ? palette + 3 * v[0] : v;
            colour[y * width + x] =
                nc <= 2 && info[9] != 3 ? v[0] * 0x010101u : (uint32_t)rgb[0] << 16 | rgb[1] << 8 | rgb[2];
        }
    }
    uint32_t *sorted = malloc(width * height * sizeof *sorted);
    must(sorted != NULL, "memory");
    memcpy(sorted, colour, width * height * sizeof *sorted);
    qsort(sorted, width * height, sizeof *sorted, ascending);
    size_t different = 1, ink = 0;
    for (size_t i = 0; i < width * height; i++) {
        different += i > 0 && sorted[i] != sorted[i - 1];
        ink += sorted[i] != 0xFFFFFF;
    }
    printf("%zu %zu %zu %zu\n", width, height, different, 1000 * ink / (width * height));
    for (int k = 2; k < argc; k++) {
        const long want = strtol(argv[k], NULL, 16);
        size_t n = 0, box[4] = {width, 0, height, 0};
        for (size_t i = 0; i < width * height; i++) {
            int far = 0;
            for (int shift = 0; shift < 24; shift += 8)
                far |= abs((int)(colour[i] >> shift & 255) - (int)(want >> shift & 255)) > 2;
            if (far)
                continue;
            const size_t x = i % width, y = i / width;
            n++;
            box[0] = x < box[0] ? x : box[0];
            box[1] = x > box[1] ? x : box[1];
            box[2] = y < box[2] ? y : box[2];
            box[3] = y > box[3] ? y : box[3];
        }
        printf("%s %zu %zu %zu %zu %zu\n", argv[k], n, box[0], box[1], box[2], box[3]);
    }
    free(raw);
    free(pixel);
    free(colour);
    free(sorted);
    free(packed);
    return 0;
}
