# awk -F, -f report.awk truth.csv rv.csv: table of true and measured velocities, and what their differences say; of alpha
# where both have a column of it.
# Rows for the figure go to residuals.txt: true velocity, difference, error, pull, fibre.

function sorted(x, n, y,    i, j, t) {
    for (i = 1; i <= n; i++) {
        t = x[i]
        for (j = i - 1; j >= 1 && y[j] > t; j--)
            y[j + 1] = y[j]
        y[j + 1] = t
    }
}

function median(x, n,    y) {
    sorted(x, n, y)
    return n % 2 ? y[(n + 1) / 2] : (y[n / 2] + y[n / 2 + 1]) / 2
}

# Standard deviation from the median absolute deviation: a few wild values do not matter.
function robust(x, n,    i, m, d) {
    m = median(x, n)
    for (i = 1; i <= n; i++)
        d[i] = x[i] > m ? x[i] - m : m - x[i]
    return 1.4826 * median(d, n)
}

# Errors for normal noise: of the median 1.2533 scatter/sqrt(n), of the scatter 1.1664 scatter/sqrt(n).
function summary(name, unit, x, pull, n,    s) {
    s = robust(pull, n)
    printf "%-10s %10.3f %10.3f %-8s %6.2f +- %4.2f %6.2f +- %4.2f\n", name, median(x, n), robust(x, n), unit, \
        median(pull, n), 1.2533 * s / sqrt(n), s, 1.1664 * s / sqrt(n)
}

FNR == 1 { # names of the columns
    delete at
    for (i = 1; i <= NF; i++)
        at[$i] = i
    next
}

NR == FNR { # the truth
    id = $at["TARGETID"]
    star[id] = $at["OBJTYPE"] != "SKY"
    fibre[id] = $at["FIBER"]
    v[id] = $at["VRAD"]
    teff[id] = $at["TEFF"]
    logg[id] = $at["LOGG"]
    feh[id] = $at["FEH"]
    if ("ALPHAFE" in at)
        alpha[id] = $at["ALPHAFE"]
    next
}

FNR == 2 {
    print "fibre   teff    S/N      true  measured     error    pull  warnings"
    print "# true velocity, measured - true, error (km/s), pull, fibre" > "residuals.txt"
}

star[$at["TARGETID"]] {
    id = $at["TARGETID"]
    stars++
    warn = $at["RVS_WARN"]
    if ($at["VRAD"] == "nan" || $at["VRAD_ERR"] == "nan") {
        printf "%5d  %5.0f  %5.1f  %8.2f  not measured                %d\n", fibre[id], teff[id], $at["SN_R"], v[id], warn
        next
    }
    n++
    dv[n] = $at["VRAD"] - v[id]
    pv[n] = dv[n] / $at["VRAD_ERR"]
    dt[n] = $at["TEFF"] - teff[id]
    pt[n] = dt[n] / $at["TEFF_ERR"]
    dg[n] = $at["LOGG"] - logg[id]
    pg[n] = dg[n] / $at["LOGG_ERR"]
    df[n] = $at["FEH"] - feh[id]
    pf[n] = df[n] / $at["FEH_ERR"]
    if (id in alpha && "ALPHAFE_ERR" in at) {
        da[++na] = $at["ALPHAFE"] - alpha[id]
        pa[na] = da[na] / $at["ALPHAFE_ERR"]
    }
    within += pv[n] > -3 && pv[n] < 3
    printf "%5d  %5.0f  %5.1f  %8.2f  %8.2f  %8.2f  %6.2f  %d\n", fibre[id], teff[id], $at["SN_R"], v[id], \
        $at["VRAD"], $at["VRAD_ERR"], pv[n], warn
    print v[id], dv[n], $at["VRAD_ERR"], pv[n], fibre[id] > "residuals.txt"
}

END {
    if (n == 0) {
        print "no star was measured"
        exit 1
    }
    printf "\n%d of %d stars measured, %d of them within 3 errors of the true velocity\n\n", n, stars, within
    print "            difference to the truth          pull = difference / error"
    print "               median    scatter            median (0 is right)  scatter (1 is right)"
    summary("velocity", "km/s", dv, pv, n)
    summary("teff", "K", dt, pt, n)
    summary("logg", "dex", dg, pg, n)
    summary("feh", "dex", df, pf, n)
    if (na > 0)
        summary("alpha", "dex", da, pa, na)
    if (within < 0.9 * stars)
        exit 1
}
