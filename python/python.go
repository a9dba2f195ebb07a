// Package python contains kintsugi.py, with which programs in Python compute gradients.
package python

import _ "embed"

// Module is the text of kintsugi.py.
//
//go:embed kintsugi.py
var Module string
