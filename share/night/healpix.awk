# awk -F, -v nside=N -f healpix.awk TABLE: pixel of HEALPix, nested, and TARGETID of each target of a table with the columns
# TARGETID, TARGET_RA, TARGET_DEC (degrees) and OBJTYPE, after a line of names; sky and rows without a target are left out.
#
# Gorski et al. 2005, ApJ 622, 759: section 4 has the curves that bound pixels, in z = sin(dec), and 4.1 the nested numbers:
# a face of 12, and within it the bits of x and y in turn.
function floor(x,    i) { i = int(x); return i > x ? i - 1 : i }

function nested(ra, dec,    pi, z, a, t, up, down, n, face, x, y, bit, pixel) {
    pi = atan2(0, -1)
    z = sin(dec * pi / 180)
    a = z < 0 ? -z : z
    # in quarters of a turn, 0 to 4
    t = ra / 90
    t -= 4 * floor(t / 4)
    if (a <= 2 / 3) {
        # lines that ascend and descend through the point
        up = floor(nside * (0.5 + t - 0.75 * z))
        down = floor(nside * (0.5 + t + 0.75 * z))
        n = floor(up / nside)
        face = floor(down / nside)
        face = n == face ? (n % 4) + 4 : n < face ? n % 4 : face % 4 + 8
        x = down % nside
        y = nside - 1 - up % nside
    } else {
        n = t < 4 ? int(t) : 3
        t -= n
        # sqrt(3 (1 - |z|)) without the loss of digits at the pole
        a = nside * cos(dec * pi / 180) * sqrt(3 / (1 + a))
        up = floor(t * a)
        down = floor((1 - t) * a)
        up = up < nside ? up : nside - 1
        down = down < nside ? down : nside - 1
        face = z > 0 ? n : n + 8
        x = z > 0 ? nside - 1 - down : up
        y = z > 0 ? nside - 1 - up : down
    }
    for (bit = 1; x > 0 || y > 0; bit *= 4) {
        pixel += bit * (x % 2 + 2 * (y % 2))
        x = int(x / 2)
        y = int(y / 2)
    }
    return face * nside * nside + pixel
}

FNR > 1 && $1 >= 0 && $2 != "" && $3 != "" && $4 != "SKY" && $4 != "BAD" { printf "%d %s\n", nested($2, $3), $1 }
