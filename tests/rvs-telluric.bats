load common

@test "rvs-telluric reads transmissions and optical depths" {
    printf '# wavelength O2 H2O\n6870 1 1\n6871 0.5 1\n\n6873 0.9 0 # opaque\n' >t.txt
    rvs-telluric --transmission -o t.h5 t.txt
    h5check t.h5
    h5dump -y -w 0 -d /transmission/tau t.h5 | grep -q '0, 0.693147, 0.105361'
    # a transmission of 0 has no logarithm: opaque
    h5dump -y -w 0 -d /transmission/tau t.h5 | grep -q '0, 0, 27.631'
    h5dump -d /transmission/species t.h5 | grep -q '"H2O'
    printf '6870 0 3\n6871 0.25 0\n' >d.txt
    rvs-telluric --air --species CH4,O3 -o d.h5 d.txt
    h5dump -y -w 0 -d /transmission/tau d.h5 | grep -q '0, 0.25'
    h5dump -a /transmission/wavelength/medium d.h5 | grep -q air
}

@test "rvs-telluric refuses what is no table" {
    printf '6870 0 0\n6871 0\n' >short.txt
    fails_with 3 '*short.txt:2: is not a row of 3 numbers*--species*' rvs-telluric -o x.h5 short.txt
    printf '6870 0 0\n6870 0 0\n' >same.txt
    fails_with 3 '*same.txt*do not increase*' rvs-telluric -o x.h5 same.txt
    printf '6870 0 -1\n6871 0 0\n' >negative.txt
    fails_with 3 '*negative.txt:1: -1 is no optical depth*' rvs-telluric -o x.h5 negative.txt
    printf '6870 0 95\n6871 0 98\n' >percent.txt
    fails_with 3 '*percent.txt:1: 95 is no transmission*' rvs-telluric --transmission -o x.h5 percent.txt
    printf '6870 0 nan\n6871 0 0\n' >nan.txt
    fails_with 3 '*nan.txt:1*' rvs-telluric -o x.h5 nan.txt
    : >empty.txt
    fails_with 3 '*empty.txt*0 wavelengths*' rvs-telluric -o x.h5 empty.txt
    fails_with 2 '*1 to 15 characters*' rvs-telluric --species O2,, -o x.h5 same.txt
    printf '6870 0 0\n6871 0 0\n' >good.txt
    fails_with 3 '*two species are called O2*' rvs-telluric --species O2,O2 -o x.h5 good.txt
    fails_with 2 '*one text, or --simulated*' rvs-telluric -o x.h5 --simulated 6860,6900 same.txt
    fails_with 2 '*one text, or --simulated*' rvs-telluric -o x.h5
    fails_with 2 '*MIN,MAX*' rvs-telluric -o x.h5 --simulated 6900,6800
}

@test "rvs-telluric --simulated has the lines of specx-sim" {
    specx-sim -q --arm r --fibers 2 --no-sky --wavelength 6860,6900 --step 0.1 --tellurics 0.7 --truth truth.h5 -o i.fits
    # the truth goes 60 Angstrom beyond the image
    run -0 --separate-stderr rvs-telluric --simulated 6800,6960.01 --step 0.1 -o air.h5
    [[ $stderr == *'water are made up'* ]]
    values() { h5dump -y -w 0 -m %.12g -d "$2" "$1" | tr -d ' ' | tr , '\n' | grep -E '^[0-9.e-]+$'; }
    values truth.h5 /truth/transmission >transmission
    paste <(values air.h5 /transmission/tau | head -n "$(wc -l <transmission)") transmission |
        awk '{ d = exp(-0.7 * $1) - $2; if (d * d > 1e-16) bad = 1; if ($2 < 0.3) deep = 1 } END { exit bad || !deep }'
}
