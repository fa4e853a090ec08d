/* mock_network [--packed|--pixels] FILE.npz: a network in the manner of The Payne, from teff (in 1000 K), logg, feh and
 * vturb to the normalised flux at 400 wavelengths, 5000 to 5199.5 Angstrom. --pixels: arrays of the shapes that a
 * network for each pixel has, the first form of The Payne. */
#include <math.h>

#include "mock_npz.h"

enum { NLABEL = 4, NHIDDEN = 8, NPIX = 400 };

int main(int argc, char **argv)
{
    static mock_npz z;
    static double w[NPIX][NHIDDEN], b[NPIX], wave[NPIX];
    double w0[NHIDDEN][NLABEL], w1[NHIDDEN][NHIDDEN], b0[NHIDDEN], b1[NHIDDEN];
    const double lo[NLABEL] = {4.5, 3.5, -1.5, 1}, hi[NLABEL] = {6.5, 5, 0.5, 2};
    if (argc < 2)
        return 2;
    z.packed = strcmp(argv[1], "--packed") == 0;
    for (int i = 0; i < NHIDDEN; i++) {
        for (int j = 0; j < NLABEL; j++)
            w0[i][j] = sin(3.1 * i + 1.7 * j);
        for (int j = 0; j < NHIDDEN; j++)
            w1[i][j] = 0.6 * cos(2.3 * i + 0.9 * j * j);
        b0[i] = 0.4 * sin(5.0 * i);
        b1[i] = 0.3 * cos(4.0 * i);
    }
    for (int k = 0; k < NPIX; k++) {
        wave[k] = 5000 + 0.5 * k;
        b[k] = 1;
        for (int l = 0; l < 16; l++) {
            double x = (wave[k] - 5005.3 - 12.1 * l) / 1.1, line = exp(-0.5 * x * x);
            b[k] -= (0.25 + 0.02 * l) * line;
            for (int i = 0; i < NHIDDEN; i++)
                w[k][i] += 0.09 * sin(1.3 * l * (i + 1)) * line;
        }
    }
    static double each[NPIX][2][NLABEL];
    if (strcmp(argv[1], "--pixels") == 0)
        mock_npz_array(&z, "w_array_0", "<f8", 0, "(400, 2, 4)", each, sizeof each);
    else
        mock_npz_array(&z, "w_array_0", "<f8", 0, "(8, 4)", w0, sizeof w0);
    mock_npz_array(&z, "w_array_1", "<f8", 0, "(8, 8)", w1, sizeof w1);
    mock_npz_array(&z, "w_array_2", "<f8", 0, "(400, 8)", w, sizeof w);
    mock_npz_array(&z, "b_array_0", "<f8", 0, "(8,)", b0, sizeof b0);
    mock_npz_array(&z, "b_array_1", "<f8", 0, "(8,)", b1, sizeof b1);
    mock_npz_array(&z, "b_array_2", "<f8", 0, "(400,)", b, sizeof b);
    mock_npz_array(&z, "x_min", "<f8", 0, "(4,)", lo, sizeof lo);
    mock_npz_array(&z, "x_max", "<f8", 0, "(4,)", hi, sizeof hi);
    mock_npz_array(&z, "wavelength", "<f8", 0, "(400,)", wave, sizeof wave);
    FILE *f = fopen(argv[argc - 1], "wb");
    size_t size = mock_npz_finish(&z);
    return f == NULL || fwrite(z.data, 1, size, f) != size || fclose(f) != 0;
}
