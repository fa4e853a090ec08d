# Lint: awk runs END after an exit of another rule, and an exit there sets the status anew, so that a check cannot fail.
# Where END has an exit that may be 0, one before it has to be `exit bad = 1`, and that of END to begin with `exit bad`.
# Programs in scripts and Bats files, or whole files *.awk. Usage: awk -f awk-end.awk FILE...; status 1: one does not.

FNR == 1 { lint(); name = FILENAME; text = "" }
{ text = text $0 "\n" }
END { lint(); exit failed }

function lint(    rest, before, end) {
    if (name ~ /\.awk$/)
        check(text, 1)
    for (rest = text; name !~ /\.awk$/ && match(rest, /(^|[^[:alnum:]_.\/-])awk ([^'\n]|\\\n)*'/); rest = substr(rest, end)) {
        before += lines(substr(rest, 1, RSTART + RLENGTH - 1))
        rest = substr(rest, RSTART + RLENGTH)
        end = index(rest "'", "'")
        check(substr(rest, 1, end - 1), before + 1)
        before += lines(substr(rest, 1, end - 1))
    }
}

# A program that begins in a line of the file.
function check(program, line,    main, last) {
    program = "\n" program
    gsub(/\n *#[^\n]*/, "\n", program)
    if (!match(program, /(^|[^[:alnum:]_])END[ \n]*[{]/))
        return
    main = substr(program, 1, RSTART)
    last = substr(program, RSTART + RLENGTH)
    line += lines(main) - 1
    gsub(/exit [1-9]/, "", last)
    if (last !~ /(^|[^[:alnum:]_])exit/)
        return
    if (gsub(/exit bad = /, "", main) && last !~ /exit bad/)
        tell(line)
    else if (main ~ /(^|[^[:alnum:]_])exit *[^ ;}\n]/)
        tell(line)
}

function tell(line) {
    print name ":" line ": END sets the status of an exit before it anew: write `exit bad = 1`, and END { exit bad || ... }"
    failed = 1
}

function lines(text) { return gsub(/\n/, "", text) }
