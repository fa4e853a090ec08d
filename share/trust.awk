# awk -f trust.awk tests/trust/results: the table of attacks (tests/trust/run.sh -t) as a list of mdoc(7), for
# specpipe-trust(7).
BEGIN {
    FS = " *[|] *"
    print ".Bl -column a"
    print ".It class Ta tries Ta wrong Ta soft Ta stride Ta attack"
}
NR > 2 {
    gsub(/[(]/, "\\\\\\&(") # no macro begins with it
    print ".It " $2 " Ta " $3 " Ta " $4 " Ta " $5 " Ta " $6 " Ta " $8
    sum += $3
    wrong += $4
    soft += $5
}
END {
    print ".It all Ta " sum " Ta " wrong " Ta " soft " Ta  Ta "
    print ".El"
}
