# The demo (share/demo), from raw images to velocities and parameters, with figures in the form of the others here: `make
# check-science`, some minutes an exposure of 65 stars. DEMO_SEEDS="1 2" for fewer than 500 stars.
load ../common
load common

@test "the demo's stars: velocities, parameters and their errors" {
    need_program gnuplot
    local seed q
    for seed in ${DEMO_SEEDS:-1 2 3 4 5 6 7 8}; do
        bash "$SPX_ROOT/share/demo/demo.sh" "demo$seed" "$seed" >log 2>&1 || { cat log; false; }
        # of the same star: both tables in the order of TARGETID
        join -t, <(tail -n +2 "demo$seed/truth.csv" | sort -t, -k1,1) <(tail -n +2 "demo$seed/rv.csv" | sort -t, -k1,1) >>stars
        rm -r "demo$seed"
    done
    # TARGETID FIBER OBJTYPE, true VRAD TEFF LOGG FEH ALPHAFE, then each with its error (SN_R and RVS_WARN before the last)
    for q in VRAD:9:4 TEFF:11:5 LOGG:13:6 FEH:15:7 ALPHAFE:19:8; do
        awk -F, -v q="$q" '{ split(q, at, ":"); print $at[2], $(at[2] + 1), $at[3] }' stars | grep -v nan |
            tell_pulls "demo, ${q%%:*}"
        # 520 stars: medians within 0.16 to 0.17
        awk '{ exit !($1 * $1 < (0.05 + 2 * $2)^2 && $3 > 0.9 - 3 * $4 && $3 < 1.1 + 3 * $4) }' pulls
    done
}
