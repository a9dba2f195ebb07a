package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// none is shown in place of an unknown number.
const none = "–"

// count formats an integer with separators: 61,706.
func count[T ~int | ~uint64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// digits formats a number with about four significant digits, without an exponent if possible.
func digits(x float64) string {
	a := math.Abs(x)
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return none
	case a == 0:
		return "0"
	case a >= 1e7 || a < 1e-4:
		return strconv.FormatFloat(x, 'e', 2, 64)
	case a >= 1000:
		return count(int(math.Round(x)))
	}
	places := 3 - int(math.Floor(math.Log10(a)))
	return strconv.FormatFloat(x, 'f', max(0, min(places, 6)), 64)
}

// percent formats a fraction as a percentage.
func percent(x float64) string {
	if math.IsNaN(x) {
		return none
	}
	return strconv.FormatFloat(100*x, 'f', 1, 64) + " %"
}

// seconds formats a time.
func seconds(s float64) string {
	switch {
	case math.IsNaN(s):
		return none
	case s < 0:
		return "-" + seconds(-s)
	case s == 0:
		return "0 s"
	case s < 0.9995:
		return strconv.FormatFloat(1000*s, 'f', 0, 64) + " ms"
	case s < 10:
		return strconv.FormatFloat(s, 'f', 2, 64) + " s"
	case s < 59.95:
		return strconv.FormatFloat(s, 'f', 1, 64) + " s"
	case s < 3600:
		whole := int(math.Round(s))
		return strings.TrimSuffix(fmt.Sprintf("%d min %d s", whole/60, whole%60), " 0 s")
	}
	minutes := int(math.Round(s / 60))
	text := fmt.Sprintf("%d h %d min", minutes/60, minutes%60)
	if days := minutes / (24 * 60); days >= 2 {
		text = fmt.Sprintf("%d d %d h %d min", days, minutes/60%24, minutes%60)
	}
	return strings.TrimSuffix(strings.TrimSuffix(text, " 0 min"), " 0 h")
}

// plural formats a number of things: "1 failure", "2 failures".
func plural[T ~int | ~uint64](n T, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return count(n) + " " + thing + "s"
}
