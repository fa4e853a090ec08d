#include "common/kernel_options.h"

#include <stddef.h>

const spx_err_option spx_kernel_options[] = {
    {"arms", "--arms"},
    {"device", "--device"},
    {"dt", "--dt"},
    {"hook", "--hook"},
    {"interpolator", "--interpolator"},
    {"knots", "--knots"},
    {"library_resolution", "--library-resolution"},
    {"log_param", "--log-param"},
    {"make_templates", "rvs-template"},
    {"map", "--map"},
    {"max_device_mem", "--max-device-mem"},
    {"method", "--method"},
    {"native", "--native"},
    {"npoly", "--npoly"},
    {"param_keywords", "fits2h5 --param-keywords"},
    {"pca", "--pca"},
    {"psf_error", "--psf-error"},
    {"rank", "--rank"},
    {"resolution_matrix", "--resolution-matrix"},
    {"setup", "-s"},
    {"skip_nan", "--skip-nan"},
    {"spectra", "--spectra"},
    {"terms", "--terms"},
    {"stars", "--stars"},
    {"train_nn", "--train-nn"},
    {"vrange", "--vrange"},
    {"wavelength", "--wavelength"},
    {NULL, NULL},
};
