/* Fuzz target: texts from users: expressions, numbers, lists, sizes, setups. Each parser refuses a text, or returns a
 * value that is finite where it promises that. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "app/opt.h"
#include "base/parse.h"
#include "common/setup_options.h"
#include "num/expr.h"
#include "template/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[4096];
    spx_expr x;
    spx_template_request setup;
    double value, list[8];
    size_t n, bytes;
    long whole;
    if (size >= sizeof text)
        size = sizeof text - 1;
    memcpy(text, data, size);
    text[size] = '\0';
    if (spx_expr_parse(text, &x, NULL) == SPX_OK) {
        if (x.n < 1 || x.n > SPX_EXPR_MAX)
            abort();
        value = spx_expr_eval(&x, 5000);
        (void)value;
    }
    if (spx_parse_double(text, "text", &value, NULL) == SPX_OK && !isfinite(value))
        abort();
    (void)spx_parse_long(text, "text", &whole, NULL);
    (void)spx_parse_bytes(text, "text", &bytes, NULL);
    if (spx_parse_doubles(text, ',', "text", "N,N...", 8, list, &n, NULL) == SPX_OK && (n < 1 || n > 8))
        abort();
    if (spx_template_parse_setup(text, &setup, NULL) == SPX_OK && !(setup.wmin < setup.wmax && setup.step > 0))
        abort();
    return 0;
}
