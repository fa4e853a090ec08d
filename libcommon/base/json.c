/* Prints values of JSON (base/json.h). */
#include "base/json.h"

#include <math.h>
#include <string.h>

/* Bytes of the UTF-8 character at s, of which n are left; 0: it is none (RFC 3629: no overlong forms, no surrogates).
 */
static size_t utf8_length(const unsigned char *s, size_t n)
{
    const size_t len = s[0] < 0x80                   ? 1
                       : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                       : (s[0] & 0xf0) == 0xe0       ? 3
                       : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                                     : 0;
    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    const int overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    const int beyond = (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf4 && s[1] >= 0x90);
    return overlong || beyond ? 0 : len;
}

static void print_string(FILE *out, const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    fputc('"', out);
    for (size_t i = 0; i < n;) {
        const size_t len = utf8_length(s + i, n - i);
        if (s[i] == '"' || s[i] == '\\')
            fprintf(out, "\\%c", s[i]);
        else if (s[i] < 0x20 || s[i] == 0x7f || len == 0)
            fprintf(out, "\\u%04x", s[i]);
        else
            (void)fwrite(s + i, 1, len, out);
        i += len > 0 ? len : 1;
    }
    fputc('"', out);
}

void spx_json_string(FILE *out, const char *s)
{
    print_string(out, s, strlen(s));
}

void spx_json_number(FILE *out, double v, int digits)
{
    if (isfinite(v))
        fprintf(out, "%.*g", digits, v);
    else
        fputs("null", out);
}

void spx_json_lines(FILE *out, const char *lines)
{
    fputc('[', out);
    for (const char *p = lines; *p != '\0'; p += *p == '\n') {
        const size_t n = strcspn(p, "\n");
        fputs(p > lines ? ", " : "", out);
        print_string(out, p, n);
        p += n;
    }
    fputc(']', out);
}
