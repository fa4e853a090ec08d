/* mock_network [--packed] FILE.npz: a network in the manner of The Payne, from teff (in 1000 K), logg, feh and vturb to
 * the normalised flux at 400 wavelengths, 5000 to 5199.5 Angstrom.
 *
 * mock_network --pixels|--two FILE.npz [TEFF LOGG FEH VTURB PIXEL]: a network of three neurons for each pixel, the
 * first form of The Payne, whose last layer is their sum, or, --two, a sigmoid of it; and prints the flux of a pixel.
 */
#include <math.h>

#include "mock_npz.h"

enum { NLABEL = 4, NHIDDEN = 8, NPIX = 400 };

enum { NEURON = 3 };

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void networks_of_pixels(mock_npz *z, int two, const double *lo, const double *hi, char **at)
{
    static double w0[NPIX][NEURON][NLABEL], b0[NPIX][NEURON], w1[NPIX][NEURON], b1[NPIX], w2[NPIX], b2[NPIX];
    for (int k = 0; k < NPIX; k++) {
        double x = (k % 25 - 12) / 3.0, line = exp(-0.5 * x * x); /* a line every 12.5 Angstrom */
        for (int i = 0; i < NEURON; i++) {
            for (int j = 0; j < NLABEL; j++)
                w0[k][i][j] = 2 * sin(3.1 * i + 1.7 * j + k / 25);
            b0[k][i] = 0.4 * sin(5.0 * i + k);
            w1[k][i] = -0.3 * line * (1 + i % 2);
        }
        b1[k] = two ? 0.2 * cos(k) : 1;
        w2[k] = -0.8 * line;
        b2[k] = 1;
    }
    mock_npz_array(z, "w_array_0", "<f8", 0, "(400, 3, 4)", w0, sizeof w0);
    mock_npz_array(z, "b_array_0", "<f8", 0, "(400, 3)", b0, sizeof b0);
    mock_npz_array(z, "w_array_1", "<f8", 0, "(400, 3)", w1, sizeof w1);
    mock_npz_array(z, "b_array_1", "<f8", 0, "(400,)", b1, sizeof b1);
    if (two) {
        mock_npz_array(z, "w_array_2", "<f8", 0, "(400,)", w2, sizeof w2);
        mock_npz_array(z, "b_array_2", "<f8", 0, "(400,)", b2, sizeof b2);
    }
    if (at == NULL)
        return;
    const int k = atoi(at[NLABEL]);
    double sum = b1[k];
    for (int i = 0; i < NEURON; i++) {
        double a = b0[k][i];
        for (int j = 0; j < NLABEL; j++)
            a += w0[k][i][j] * ((atof(at[j]) / (j == 0 ? 1000 : 1) - lo[j]) / (hi[j] - lo[j]) - 0.5);
        sum += w1[k][i] * sigmoid(a);
    }
    printf("%.7g\n", two ? b2[k] + w2[k] * sigmoid(sum) : sum);
}

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
    const int two = strcmp(argv[1], "--two") == 0, of_pixels = two || strcmp(argv[1], "--pixels") == 0;
    if (of_pixels) {
        networks_of_pixels(&z, two, lo, hi, argc == 4 + NLABEL ? argv + 3 : NULL);
    } else {
        mock_npz_array(&z, "w_array_0", "<f8", 0, "(8, 4)", w0, sizeof w0);
        mock_npz_array(&z, "w_array_1", "<f8", 0, "(8, 8)", w1, sizeof w1);
        mock_npz_array(&z, "w_array_2", "<f8", 0, "(400, 8)", w, sizeof w);
        mock_npz_array(&z, "b_array_0", "<f8", 0, "(8,)", b0, sizeof b0);
        mock_npz_array(&z, "b_array_1", "<f8", 0, "(8,)", b1, sizeof b1);
        mock_npz_array(&z, "b_array_2", "<f8", 0, "(400,)", b, sizeof b);
    }
    mock_npz_array(&z, "x_min", "<f8", 0, "(4,)", lo, sizeof lo);
    mock_npz_array(&z, "x_max", "<f8", 0, "(4,)", hi, sizeof hi);
    mock_npz_array(&z, "wavelength", "<f8", 0, "(400,)", wave, sizeof wave);
    FILE *f = fopen(argv[of_pixels && argc > 2 ? 2 : argc - 1], "wb");
    size_t size = mock_npz_finish(&z);
    return f == NULL || fwrite(z.data, 1, size, f) != size || fclose(f) != 0;
}
