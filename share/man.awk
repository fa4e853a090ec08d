# awk -v version=V [-v insert=COMMAND] -f man.awk CHANGELOG.md PAGE.in: a manual page from its text.
# @VERSION@ and @DATE@ are replaced (the date of the newest release in CHANGELOG.md, so that a page does not depend on
# when it was made), and a line @OPTIONS@, @SCHEMA@, @RULES@ or @TRUST@ by the output of COMMAND. In that output, columns of a table get the
# width of their longest entry, for groff lets longer ones touch the next column, and lists of bits may be broken.

# One line of inserted text. A table is held back until its end.
function emit(text,    n, part, k) {
    if (text ~ /^\.Bl -column/) {
        rows = 1
        delete row
        delete width
    } else if (rows == 0) {
        if (text ~ /^Bits: /)
            gsub(/,/, ", ", text)
        print text
    } else if (text == ".El") {
        printf ".Bl -column"
        for (k = 1; k in width; k++)
            printf " \"%s\"", width[k]
        print ""
        for (k = 1; k < rows; k++)
            print row[k]
        print text
        rows = 0
    } else {
        row[rows++] = text
        n = split(substr(text, 5), part, " Ta ")
        for (k = 1; k < n; k++)
            if (length(part[k]) > length(width[k]))
                width[k] = part[k]
    }
}

FNR == NR {
    if (date == "" && match($0, /[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]/)) {
        split("January February March April May June July August September October November December", month, " ")
        date = month[substr($0, RSTART + 5, 2) + 0] " " (substr($0, RSTART + 8, 2) + 0) ", " substr($0, RSTART, 4)
    }
    next
}
$0 == "@OPTIONS@" || $0 == "@SCHEMA@" || $0 == "@RULES@" || $0 == "@TRUST@" {
    while ((status = (insert | getline line)) > 0)
        emit(line)
    if (status < 0 || close(insert) != 0) {
        print FILENAME ": failed: " insert > "/dev/stderr"
        exit 1
    }
    next
}
{
    gsub(/@VERSION@/, version)
    gsub(/@DATE@/, date)
    print
}
