// Package look is what is said of a run by those that take no part in it: its present state, its page, and its bill.
// The command that ends a run is here too, since it looks whether the run has ended. A run does not notice that
// somebody looks, and none of this needs the settings of the run.
package look
