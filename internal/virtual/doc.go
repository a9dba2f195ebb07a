// Package virtual trains models under virtual time: gradients are real, and the time that they take
// follows a distribution, a recorded run or a schedule. The core of the conductor decides, so a
// policy does what it does in a run. Begin reading at Training. kintsugi simulate and the experiment
// of DBW use it.
package virtual
