# Products of this and every earlier version of the schemas, as they are kept in tests/data/golden: they are valid, the
# programs that take them give the answers that are kept beside them, and no version of a schema is without one. How
# they were made, and what to do when a test here fails: tests/data/README.

load common

golden=$SPX_ROOT/tests/data/golden

# for_each FUNCTION: once for each version, whose folder is $d, in an empty folder. Not in a condition: commands that
# fail in the middle of the function would not count.
for_each() {
    local d n=0
    for d in "$golden"/*/; do
        echo "with $d"
        n=$((n + 1))
        mkdir $n && cd $n || return
        "$1"
        cd ..
    done
    [ $n -gt 0 ]
}

# values FILE DATASET: its numbers, one a line.
values() {
    h5dump -A 0 -y -w 1 -m %.17g -d "$2" "$1" | sed -n 's/^ *\(-\{0,1\}[0-9][^ ,]*\),\{0,1\}$/\1/p'
}

# same_numbers FILE FILE DATASET TOLERANCE [magnitudes]: equal within this fraction of the largest magnitude; 0: exactly;
# magnitudes: but for signs.
same_numbers() {
    paste <(values "$1" "$3") <(values "$2" "$3") | awk -v tol="$4" -v what="$3" -v as="${5:-}" '
        as == "magnitudes" { if ($1 < 0) $1 = -$1; if ($2 < 0) $2 = -$2 }
        { a[NR] = $1; b[NR] = $2; bad += NF != 2; m = $2 < 0 ? -$2 : $2; if (m > top) top = m }
        END {
            for (i = 1; i <= NR; i++) {
                d = a[i] - b[i]
                if (d > tol * top || d < -tol * top) { bad++; if (!first) first = i }
            }
            if (bad || !NR) printf "%s: %d of %d values differ, the first is number %d\n", what, bad, NR, first - 1
            exit bad > 0 || NR == 0
        }'
}

# same_table CSV CSV [COLUMN:ERROR:TOLERANCE...]: the same rows and columns; of those named, numbers that differ by no
# more than TOLERANCE times the number in column ERROR (or TOLERANCE itself, without ERROR); columns that are not named
# are only counted, and TARGETID is the same.
same_table() {
    awk -F , -v rules="$(printf '%s ' "${@:3}")" '
        FNR == 1 && NR != 1 { second = 1 }
        !second { line[FNR] = $0; rows = FNR; next }
        FNR == 1 {
            if ($0 != line[1]) { print "columns differ: " $0; bad = 1; exit }
            for (i = 1; i <= NF; i++) at[$i] = i
            nrule = split("TARGETID::0 " rules, rule, " ")
            next
        }
        {
            if (split(line[FNR], want, ",") != NF) { print "row " FNR - 1 " has other columns"; bad = 1 }
            for (r = 1; r <= nrule; r++) {
                split(rule[r], part, ":")
                c = at[part[1]]
                if (!c) { print "no column " part[1]; bad = 1; exit }
                d = $c - want[c]
                most = part[3] * (part[2] != "" ? want[at[part[2]]] : 1)
                if (!(d <= most && d >= -most)) {
                    print part[1] " of row " FNR - 1 " is " $c ", was " want[c] ", may differ by " most
                    bad = 1
                }
            }
        }
        END { if (!bad && FNR != rows) { print "rows: " FNR - 1 ", were " rows - 1; bad = 1 } exit bad }' "$2" "$1"
}

@test "golden products are valid" {
    all_valid() {
        local f
        for f in "$d"*.h5; do
            # made by hand, by another program: a block without the attributes and the record of a product
            [ "${f##*/}" != traces.h5 ] || continue
            run -0 h5check "$f"
            [ -z "$output" ]
        done
        run -1 h5check "${d}traces.h5"
        [ -z "$(grep -v -e ':/: attribute' -e ':/provenance: is missing' <<<"$output")" ]
    }
    for_each all_valid
}

@test "every schema has golden products of its version" {
    local schema name version d f found
    for schema in "$SPX_ROOT"/schemas/*.schema; do
        read -r name version < <(sed -n 's/^block \([^ ]*\) \([^ ]*\) .*/\1 \2/p' "$schema")
        [ -n "$version" ]
        found=
        for d in "$golden"/*/; do
            grep -qx "$name $version" "${d}schemas" || continue
            for f in "$d"*.h5; do
                if grep -q "^group /$name " "$schema"; then
                    h5dump -a "/$name/version" "$f" 2>/dev/null | grep -qF "\"$version\"" && found=$f && break
                else
                    # tables have no version of their own
                    h5ls "$f/$name" >/dev/null 2>&1 && found=$f && break
                fi
            done
        done
        [ -n "$found" ] || {
            echo "no golden product has a block $name $version: tests/data/README"
            return 1
        }
    done
}

@test "golden inventory: the file is as it was written" {
    local f=$SPX_ROOT/tests/data/golden-inventory.h5
    run -0 h5check -v "$f"
    [[ $output == *'is valid, and as it was written'* ]]
}

# Flux to a hundredth of its error, what says how good it is to a thousandth, bits of the mask exactly: a kernel that is
# faster may round otherwise, one that is wrong does not stay within that.
@test "golden image and PSF: the frame" {
    extract() {
        specx-extract -q -w 5165,5185,0.8 -o frame.h5 "${d}image.h5"
        h5check frame.h5
        local s
        for s in wavelength mask fiber; do same_numbers frame.h5 "${d}frame.h5" /frame/$s 0; done
        for s in ivar resolution; do same_numbers frame.h5 "${d}frame.h5" /frame/$s 1e-3; done
        paste <(values frame.h5 /frame/flux) <(values "${d}frame.h5" /frame/flux) <(values "${d}frame.h5" /frame/ivar) |
            awk 'NF != 3 || ($1 - $2) * ($1 - $2) * $3 > 1e-4 { bad++ } END { exit bad > 0 || NR == 0 }'
    }
    for_each extract
}

# The same arithmetic: what rounding of another order of sums may do.
@test "golden flux: the response found again, and applied" {
    flux() {
        [ -e "${d}flux.h5" ] || return 0
        # that of make-golden.sh, the default when the first were made
        specx-flux -q --smooth 1e4 --fit "${d}flux-stars.h5" "${d}flux-frame.h5" -o found.h5
        # another order of sums: the response is the solution of equations of condition 1e7
        same_numbers found.h5 "${d}flux.h5" /flux/response 1e-7
        specx-flux -q --apply "${d}flux.h5" "${d}flux-frame.h5" -o applied.h5
        same_numbers applied.h5 "${d}flux.h5" /frame/mask 0
        for s in flux ivar resolution; do same_numbers applied.h5 "${d}flux.h5" /frame/$s 1e-6; done
    }
    for_each flux
}

@test "golden raw: the image" {
    raw() {
        [ -e "${d}raw.h5" ] || return 0
        specx-preproc -q --layout "${d}raw.layout" "${d}raw.h5" -o image.h5
        for f in data ivar readnoise; do
            same_numbers image.h5 "${d}preproc.h5" /image/$f 1e-6
        done
        same_numbers image.h5 "${d}preproc.h5" /image/mask 0
        specx-preproc -q --layout "${d}raw.layout" --combine bias "${d}raw.h5" "${d}raw.h5" -o master.h5
        same_numbers master.h5 "${d}master.h5" /master/data 1e-6
        same_numbers master.h5 "${d}master.h5" /master/ivar 1e-6
    }
    for_each raw
}

@test "golden flat: the frame divided by it" {
    divide() {
        [ -e "${d}flat.h5" ] || return 0
        specx-flat -q --apply "${d}flat.h5" "${d}frame.h5" -o flattened.h5
        same_numbers flattened.h5 "${d}flattened.h5" /frame/mask 0
        for s in flux ivar; do same_numbers flattened.h5 "${d}flattened.h5" /frame/$s 1e-6; done
    }
    for_each divide
}

@test "golden image: the FITS files, to the byte" {
    back() {
        h52fits -q --file 0 -o small.fits "${d}image.h5"
        h52fits -q --file 1 -o small-psf.fits "${d}image.h5"
        sha256sum -c --quiet "${d}image.sha256"
    }
    for_each back
}

@test "golden grid of spots: the FITS file, and spots that simulate and extract" {
    grid() {
        [ -e "${d}psf-grid.h5" ] || return 0
        h52fits -q -o grid.fits "${d}psf-grid.h5"
        fits2h5 -q grid.fits -o again.h5
        h5diff again.h5 "${d}psf-grid.h5" /psf/spots
        specx-sim -q --no-sky --sky-fibers 0 --psf "${d}psf-grid.h5" --format hdf5 -o image.h5
        specx-extract -q -w 5168,5182,0.8 image.h5 -o frame.h5
        h5check frame.h5
    }
    for_each grid
}

@test "golden frame, spectra and velocities: FITS files of their kind" {
    written() {
        local as
        for as in frame:frame spectra:spectra rv:rvtab rv:rvmod; do
            h52fits -q --as "${as#*:}" -o "${as#*:}.fits" "$d${as%:*}.h5"
        done
        # and back: the numbers are the same
        fits2h5 -q frame.fits -o frame.h5
        h5check frame.h5
        same_numbers frame.h5 "${d}frame.h5" /frame/flux 1e-6
        fits2h5 -q spectra.fits -o spectra.h5
        h5check spectra.h5
        same_numbers spectra.h5 "${d}spectra.h5" /spectra/b/flux 1e-6
    }
    for_each written
}

@test "golden spectra: joined, as they were" {
    joined() {
        h5merge -q "${d}spectra.h5" -o one.h5
        local arm set
        for arm in b r; do # attributes are those of today's definition
            for set in wavelength flux ivar mask resolution; do
                same_numbers one.h5 "${d}spectra.h5" "/spectra/$arm/$set" 0
            done
        done
        h5merge -q --by rows --allow repeated "${d}spectra.h5" "${d}spectra.h5" -o two.h5
        h5check two.h5
        [ "$(values two.h5 /spectra/r/flux | wc -l)" -eq $((2 * $(values "${d}spectra.h5" /spectra/r/flux | wc -l))) ]
    }
    for_each joined
}

# A tenth of the error, which a change of the search may make; warnings exactly.
rules=(VRAD:VRAD_ERR:0.1 VRAD_ERR:VRAD_ERR:0.05 TEFF:TEFF_ERR:0.1 LOGG:LOGG_ERR:0.1 FEH:FEH_ERR:0.1 RVS_WARN::0)

@test "golden templates and spectra: the velocities" {
    # columns, and bits of RVS_WARN, that came later are left out
    columns() {
        h5table --csv -c "$(head -n 1 "$2")" "$1" | awk -F, -v OFS=, '
            NR == 1 { for (i = 1; i <= NF; i++) if ($i == "RVS_WARN") warn = i }
            /CHISQ_LOGP/ { warn = 0 } # of a version that has the bit
            NR > 1 && warn { $warn %= 256 }
            1'
    }
    velocities() {
        local fit=(rvs-fit -q --arms b "--vrange=-400,400" --npoly 3 --no-rotation)
        "${fit[@]}" -t "${d}templates.h5" "${d}spectra.h5" -o rv.h5
        columns rv.h5 "${d}rv.csv" >rv.csv
        same_table rv.csv "${d}rv.csv" "${rules[@]}"
        "${fit[@]}" -t "${d}templates.h5" --joint target "${d}spectra.h5" "${d}spectra.h5" -o joint.h5
        columns joint.h5 "${d}rv-joint.csv" >joint.csv
        same_table joint.csv "${d}rv-joint.csv" "${rules[@]}" NEXP::0
        # other interpolators read their parts of the templates, and a former fit is a start
        "${fit[@]}" -t "${d}templates.h5" --interpolator nn "${d}spectra.h5" -o nn.h5
        "${fit[@]}" -t "${d}templates-simplex.h5" --start "${d}rv.h5" "${d}spectra.h5" -o simplex.h5
        h5check nn.h5 simplex.h5
        columns simplex.h5 "${d}rv.csv" >simplex.csv
        same_table simplex.csv "${d}rv.csv" VRAD:VRAD_ERR:1
    }
    for_each velocities
}

@test "golden velocities of exposures: the zero point" {
    zero_points() {
        [ -e "${d}zero.h5" ] || return 0
        rvs-zero -q --by none --least 2 "${d}rv-epochs.h5" -o zero.h5
        paste -d, <(h5table --csv -t /zeropoint/table zero.h5) <(h5table --csv -t /zeropoint/table "${d}zero.h5") |
            awk -F, 'NR == 2 { exit !(($5 - $14)^2 < 1e-6 && ($6 - $15)^2 < 1e-6 && $8 == $17 && NF == 18) }'
        local fit=(rvs-fit -q --arms b "--vrange=-400,400" --npoly 3 --no-rotation -t "${d}templates.h5")
        "${fit[@]}" --zero-points "${d}zero.h5" "${d}spectra.h5" -o rv.h5
        h5check rv.h5
    }
    for_each zero_points
}

@test "golden tables: the text" {
    tables() {
        local t
        for t in rv rv-joint truth; do
            h5table --csv "$d$t.h5" >$t.csv
            cmp $t.csv "$d$t.csv"
        done
    }
    for_each tables
}

@test "golden library and network: the templates" {
    templates() {
        local setup=b:5150:5230:0.6:FWHM=1.8 s tolerance
        # straight lines between samples of the library, in the first ones
        case $d in */0.1.0/ | */0.1.0.1/) s=--straight-lines ;; *) s= ;; esac
        # stars of the correlation set rotate with weights whose fourth moments were not right
        case $d in */0.1.0/ | */0.1.0.[1-4]/) tolerance=3e-3 ;; *) tolerance=1e-4 ;; esac
        rvs-template -q $s --setup $setup --ccf-every 5 --ccf-vsini 0,50 -o t.h5 "${d}library.h5"
        for s in wavelength params parlog grid/naxis grid/axes grid/node; do
            same_numbers t.h5 "${d}templates.h5" /templates/b/$s 0
        done
        for s in lnflux pca/mean; do same_numbers t.h5 "${d}templates.h5" /templates/b/$s 1e-4; done
        same_numbers t.h5 "${d}templates.h5" /templates/b/ccf/flux $tolerance
        rvs-template -q --setup b:5010:5190:0.6:FWHM=1.8 --no-ccf -o n.h5 "${d}network.h5"
        h5check n.h5
        specx-sim -q --models "${d}library.h5" --no-sky --fibers 2 --velocity 0 --wavelength 5185,5195 -o image.h5
        h5check image.h5
    }
    for_each templates
}

@test "golden traces and correlation functions: the stacks" {
    stacks() {
        h5stack -q --t0 250 --length 100 "${d}traces.h5" -o stack.h5
        same_numbers stack.h5 "${d}stack.h5" /stack/sample 0
        same_numbers stack.h5 "${d}stack.h5" /stack/stack 1e-5
        h5stack -q --t0 250 --length 100 --add "${d}stack.h5" "${d}traces.h5" -o twice.h5
        h5check twice.h5
        h5stack -q --method max "${d}rv.h5" -o peak.h5
        # the velocity of the largest sum of the curves is that which the fit began with, to a step of the curves
        local step
        step=$(values "${d}rv.h5" /ccf/velocity | awk 'NR == 2 { print $1 - was } { was = $1 }')
        paste <(values peak.h5 /stack/maximum_coordinate) <(awk -F , 'NR > 1 { print $10 }' "${d}rv.csv") |
            awk -v step="$step" 'NF != 2 || $1 - $2 > step || $2 - $1 > step { bad++ } END { exit bad > 0 || NR != 2 }'
    }
    for_each stacks
}

@test "golden snapshots, and what a hook returned: modes and maxima" {
    snapshots() {
        local s
        burgers -q -n 32 --viscosity 0.05 --dt 0.01 --steps 100 --every 5 --modes 0 -o b.h5
        same_numbers b.h5 "${d}burgers.h5" /burgers/snapshot 1e-9
        h5svd -q --rank 3 --center "${d}burgers.h5:/burgers/snapshot" -o svd.h5
        for s in s mean energy; do same_numbers svd.h5 "${d}svd.h5" /svd/$s 1e-6; done
        # 0.1.0 left the sign of a mode with two largest elements to rounding (CHANGELOG.md)
        local sign=signed
        [[ $d != */0.1.0/ ]] || sign=magnitudes
        for s in u v; do same_numbers svd.h5 "${d}svd.h5" /svd/$s 1e-6 $sign; done
        h5reduce -q -p argmax "${d}burgers.h5:/burgers/snapshot" -o reduce.h5
        for s in value index count; do same_numbers reduce.h5 "${d}reduce.h5" /reduce/$s 0; done
        h5reduce -q -p maximum "${d}svd.h5:/svd/s" -o first.h5
        [ "$(values first.h5 /reduce/value)" = "$(values "${d}svd.h5" /svd/s | head -n 1)" ]
        h5reduce -q -p maximum "${d}insitu.h5:/insitu/largest" -o largest.h5
        [ "$(values largest.h5 /reduce/value)" = "$(values "${d}insitu.h5" /insitu/largest | sort -g | tail -n 1)" ]
    }
    for_each snapshots
}

@test "golden transmission: the strengths of the atmosphere" {
    strengths() {
        [ -e "${d}air.h5" ] || return 0
        rvs-template -q --norm none --setup b:5150:5230:0.4:FWHM=1 "${d}library.h5" -o sharp.h5
        rvs-fit -q --templates sharp.h5 --vrange=-400,400 --npoly 3 --no-rotation --resolution-matrix \
            --tellurics "${d}air.h5" "${d}flux-frame.h5" -o t.h5
        paste -d, <(h5table --csv -t /tellurics/table -c STRENGTH_O2,STRENGTH_ERR_O2 t.h5) \
            <(h5table --csv -t /tellurics/table -c STRENGTH_O2 "${d}tellurics.h5") |
            awk -F, 'NR == 2 { d = $1 - $3; ok = d * d < 0.01 * $2 * $2 } END { exit !ok }'
        rm sharp.h5 t.h5
    }
    for_each strengths
}
