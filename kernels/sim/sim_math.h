/* Provides random numbers and constants of the simulation, for host and device: pure functions of a counter. */
#ifndef SPX_SIM_MATH_H
#define SPX_SIM_MATH_H

#include <math.h>
#include <stdint.h>

#include "hostdevice.h"
#include "num/wave.h"

/* Kinds of random numbers, each with its own counters. */
enum {
    SPX_SIM_TARGET = 1,
    SPX_SIM_LINES,
    SPX_SIM_PHOTON,
    SPX_SIM_READ,
    SPX_SIM_COSMIC,
    SPX_SIM_DEFECT,
    SPX_SIM_MOVE,
    SPX_SIM_THROUGHPUT,
    SPX_SIM_SCATTER,
    SPX_SIM_LAMP,
    SPX_SIM_FIELD,
    SPX_SIM_FRINGE,
    SPX_SIM_AMPLIFIER,
    SPX_SIM_TELLURIC,
    SPX_SIM_STAR_ERROR,
    SPX_SIM_RAW_STRUCTURE,
    SPX_SIM_RAW_WANDER,
    SPX_SIM_RAW_NOISE
};

/* Philox4x32-10 (Salmon et al. 2011, SC11, "Parallel random numbers: as easy as 1, 2, 3"). */
SPX_HD void spx_philox(uint64_t seed, const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Two uniform numbers in (0,1), 52 bits each, of draw number `draw` of item `index`. */
SPX_HD void spx_sim_uniform2(uint64_t seed, unsigned kind, unsigned camera, uint64_t index, uint32_t draw, double u[2])
{
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), kind | camera << 8, draw}, r[4];
    spx_philox(seed, c, r);
    for (int i = 0; i < 2; i++)
        u[i] = ((double)((((uint64_t)r[2 * i] << 32) | r[2 * i + 1]) >> 12) + 0.5) * 0x1p-52;
}

/* One standard normal number (Box & Muller). */
SPX_HD double spx_sim_normal(const double u[2])
{
    return sqrt(-2.0 * log(u[0])) * cos(6.283185307179586477 * u[1]);
}

/* Poisson number of mean mu >= 0. Below 10 by adding up probabilities, above by transformed rejection (PTRS: Hoermann
 * 1993, Insurance: Mathematics and Economics 12, 39). Above 1e12 a normal number: the difference is 1e-6 sigma. */
SPX_HD double spx_sim_poisson(double mu, uint64_t seed, unsigned camera, uint64_t index)
{
    double u[2];
    if (!(mu > 0.0))
        return 0.0;
    if (mu < 10.0) {
        spx_sim_uniform2(seed, SPX_SIM_PHOTON, camera, index, 0, u);
        double p = exp(-mu), sum = p;
        int k = 0;
        while (u[0] > sum && k < 200) {
            k++;
            p *= mu / k;
            sum += p;
        }
        return k;
    }
    if (mu > 1e12) {
        spx_sim_uniform2(seed, SPX_SIM_PHOTON, camera, index, 0, u);
        return floor(mu + sqrt(mu) * spx_sim_normal(u) + 0.5);
    }
    const double b = 0.931 + 2.53 * sqrt(mu), a = -0.059 + 0.02483 * b;
    const double inv_alpha = 1.1239 + 1.1328 / (b - 3.4), vr = 0.9277 - 3.6224 / (b - 2.0), lnmu = log(mu);
    for (uint32_t draw = 0; draw < 1000; draw++) {
        spx_sim_uniform2(seed, SPX_SIM_PHOTON, camera, index, draw, u);
        double x = u[0] - 0.5, us = 0.5 - fabs(x), k = floor((2.0 * a / us + b) * x + mu + 0.43);
        if (us >= 0.07 && u[1] <= vr)
            return k;
        if (k < 0.0 || (us < 0.013 && u[1] > us))
            continue;
        int sign;
        if (log(u[1] * inv_alpha / (a / (us * us) + b)) <= k * lnmu - mu - lgamma_r(k + 1.0, &sign))
            return k;
    }
    return floor(mu + 0.5); /* practically unreachable: a thousand rejections in a row */
}

/* Edge k of n >= 2 grid values, 0 <= k <= n: sample k reaches from edge k to edge k + 1, half-way to its neighbours. */
SPX_HD double spx_sim_edge(size_t n, const double *w, size_t k)
{
    if (k == 0)
        return 1.5 * w[0] - 0.5 * w[1];
    if (k == n)
        return 1.5 * w[n - 1] - 0.5 * w[n - 2];
    return 0.5 * (w[k - 1] + w[k]);
}

/* lambda_obs/lambda_rest of a source that recedes at v km/s. */
SPX_HD double spx_sim_doppler(double v)
{
    double beta = v / SPX_C_KMS;
    return sqrt((1.0 + beta) / (1.0 - beta));
}

#endif
