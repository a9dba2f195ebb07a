// Package words says numbers to people.
package words

import (
	"strconv"
	"strings"
)

// Digits formats a number with up to so many significant digits, at least 1. A large number has all
// the digits before its point, and no exponent: "1234", not "1.23e+03".
func Digits(x float64, digits int) string {
	s := strconv.FormatFloat(x, 'g', digits, 64)
	if strings.Contains(s, "e+") {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return s
}

// Bytes formats a number of bytes with up to three digits, in decimal units: "7.4 MB".
func Bytes(n float64) string {
	units := [...]string{"B", "kB", "MB", "GB", "TB"}
	unit := 0
	for ; n >= 999.5 && unit < len(units)-1; unit++ {
		n /= 1000
	}
	return Digits(n, 3) + " " + units[unit]
}
