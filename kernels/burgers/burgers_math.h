/* Provides one step of Burgers' equation in one cell, for host and device. */
#ifndef SPX_BURGERS_MATH_H
#define SPX_BURGERS_MATH_H

#include "hostdevice.h"

SPX_HD double spx_burgers_step(double left, double u, double right, double s1, double s2)
{
    return u + s2 * (right - 2.0 * u + left) - s1 * u * (right - left);
}

#endif
