// Package program runs a program of the user's, in any language, that computes gradients: a model
// in PyTorch, a simulator, a solver.
//
// The program is a child process. What it is asked and what it answers are lines of JSON on a
// socket; parameters and gradients lie in memory that both have. It is asked one thing at a time,
// and answers each question once, in order. It ends when the socket does.
//
// # The conversation
//
// The environment variable KINTSUGI_ASKS holds "1 3 4": the version of this protocol, the
// descriptor of the socket, a stream, and that of the memory. Each line is an object. A question
// has an id, counted from 1, and what it is about in "ask"; its answer has the same id, and "error"
// if it failed: a sentence for the person who wrote the program.
//
//	{"id":1,"ask":"describe","seed":7,"slots":4}
//	{"id":1,"name":"net","tensors":[{"name":"w","shape":[784,10]}],"examples":60000,"batch":64,"evaluates":true}
//
// describes the model: the parameters, row-major float32, in the order of the memory; how many
// examples there are to draw from, and how many a gradient is of unless the run says otherwise.
// Without examples the program draws by itself. It may also suggest steps, learning_rate, momentum,
// optimizer, codec, warmup, decay, weight_decay, weight_decay_for and clip_norm, and say in rates,
// by the name of a tensor, how many times the learning rate that has. The seed is that of the run,
// slots how many workers it has.
//
//	{"id":2,"ask":"initialise","bytes":67108864}
//	{"id":2}
//
// The memory has that many bytes from now on, and no more questions change that. The program maps
// it and writes the initial parameters, a function of the seed.
//
//	{"id":3,"ask":"gradient","slot":2,"version":118,"sequence":0,"seed":1893027461920,"indices":[5,17]}
//	{"id":3,"loss":0.31,"examples":2}
//
// The program overwrites the gradients with the gradient of the mean loss over those examples at
// the parameters, which it does not change, and says the loss. Without indices it says over how
// many examples. The answer must be a function of the parameters and of what is asked: everything
// random comes from that seed, which has 53 bits, so that every reader of JSON has them all.
// "loss":null is one that is no number.
//
//	{"id":4,"ask":"evaluate"}
//	{"id":4,"loss":0.29,"accuracy":0.91,"examples":10000}
//
// The loss and the accuracy of the parameters, of which either may be left out, on examples that
// are not trained on. A program that does not evaluate is not asked.
//
// # The memory
//
// A page of 4096 bytes, the parameters, the gradients, each of 4 bytes a value and in the machine's
// byte order. The first eight bytes of the page are the id of the question whose answer is still
// wanted: a program whose gradient takes long may look, and answer with anything if it is not that
// of its question, since newer parameters have made the gradient useless.
//
// # Failures
//
// A worker that is killed takes its program with it. A program that ends, or does not keep to the
// protocol, ends its worker with an error that has the last lines that the program wrote; whoever
// has started the worker starts it again. A program that computes for ever is waited for: how long
// a gradient may take, nobody but its author knows.
package program
