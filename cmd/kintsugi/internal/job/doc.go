// Package job is what a run trains, how, and where it keeps what it has learnt. Begin with [Settings].
//
// [Settings] are flags, keys of a file and variables of the environment, with the same names. [Describe] makes a
// [Problem] of them, which is a model of this binary or of a program of the user, with its data; it also fills in what
// was left to the model. A [Place] is where checkpoints lie. [Checkpoints] are those of a run: what servers and
// coordinators ask of that place.
//
// All processes of a run have the same settings, each reads them for itself, and nothing else says what the run is. So
// whatever is computed from them here, such as the layout of a model, the schedule of its optimizer, or how it survives
// a failure, is the same in all.
package job
