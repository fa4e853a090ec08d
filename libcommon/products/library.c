/* Provides block `library` (products/library.h). */
#include "products/library.h"

#include <string.h>

#include "base/mem.h"

void spx_library_free(spx_library *lib)
{
    spx_free(lib->wavelength);
    spx_free(lib->params);
    memset(lib, 0, sizeof *lib);
}
