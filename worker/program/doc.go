// Package program runs a program of the user, in any language, that computes gradients: a model in
// PyTorch, a simulator, a solver. Begin reading at Start and Program; python/kintsugi.py is the
// other side for Python. The rest of this comment specifies the protocol.
//
// The program is a child process. Questions and answers are lines of JSON on a socket; parameters
// and gradients are in shared memory. The program gets one question at a time and answers each
// question once, in order. It ends when the socket is closed.
//
// # The protocol
//
// The environment variable KINTSUGI_ASKS is "1 3 4": the version of this protocol, the file
// descriptor of the socket (a stream), and the file descriptor of the memory. Each line is a JSON
// object. A question has an id, counted from 1, and its kind in "ask". The answer has the same id.
// If the question failed, it has "error": a sentence for the author of the program.
//
//	{"id":1,"ask":"describe","seed":7,"slots":4}
//	{"id":1,"name":"net","tensors":[{"name":"w","shape":[784,10]}],"examples":60000,"batch":64,"evaluates":true}
//
// The answer describes the model: its parameters, row-major float32, in the order in which the
// memory has them; the number of examples to draw from; and the number of examples of a gradient,
// unless the run sets another. Without examples, the program draws its examples itself. The answer
// may also suggest steps, learning_rate, momentum, optimizer, codec, warmup, decay, betas, epsilon,
// weight_decay, weight_decay_for and clip_norm. The form of each is that of the flag of train, so
// betas is a string such as "0.9,0.95". rates may say, by the name of a tensor, by which factor its
// learning rate is multiplied. seed is the seed of the run, slots the number of its workers.
//
//	{"id":2,"ask":"initialise","bytes":67108864,"unread":false}
//	{"id":2}
//
// From now on the memory has this size, and no later question changes it. The program maps the
// memory and writes the initial parameters, which must be a function of the seed. If nobody
// will read them, unread is true, and the program need not make them: a worker has those of the run.
//
//	{"id":3,"ask":"gradient","slot":2,"local_rank":0,"version":118,"sequence":0,"seed":1893027461920,"indices":[5,17]}
//	{"id":3,"loss":0.31,"examples":2}
//
// The program overwrites the gradients in memory with the gradient of the mean loss over these
// examples at the parameters, and answers with that loss. It must not change the parameters. If the
// question has no indices, the answer must say how many examples were used. The answer must be a
// function of the parameters and the question, all but local_rank: that is for a program with several
// GPUs, which takes one by it, since it differs between the workers of a host. All randomness must
// come from this seed, which has 53 bits, so that every JSON parser reads it exactly. "loss":null
// means that the loss is not a number.
//
//	{"id":4,"ask":"steps","slot":2,"local_rank":0,"sequence":0,"rule":"adamw","momentum":0,"betas":[0.9,0.999],
//	 "epsilon":1e-8,"clip_norm":1,"groups":[0,1],"decays":[0.1,0],"units":[0.001,0.001],
//	 "batches":[{"version":1888,"seed":1893027461920,"indices":[5,17],"rates":[0.001,0.001]},…]}
//	{"id":4,"loss":0.31,"examples":32}
//
// A program whose description has "takes_steps" gets this question in place of that for a gradient,
// in runs with local steps. (On one line; so are all.) The program takes a step of the rule along
// the gradient of each batch, in order, on a copy of the parameters and with a state of the rule
// that begins at zero. Package kernels has the formulas, and the names are those of its rules: a
// program that does not know one answers with an error. The bias corrections of Adam count from the
// first of these steps. groups says, for each tensor, to which group it belongs; weight decay, the
// learning rate of each batch, and unit are by group. A gradient whose norm, over all tensors, is
// longer than clip_norm is scaled down to that; 0 allows any. Then the program overwrites the
// gradients in memory with the way back, (start − end) / unit, or 0 where the unit is 0, and answers
// with the mean of the losses, each before its step. What was said of gradients holds here too.
//
//	{"id":5,"ask":"evaluate"}
//	{"id":5,"loss":0.29,"accuracy":0.91,"examples":10000}
//
// The answer has the loss and the accuracy of the parameters, on examples that are not trained on.
// Either may be left out. A program whose description does not have "evaluates" does not get this
// question.
//
// # The memory
//
// The memory consists of a page of 4096 bytes, the parameters, and the gradients. A value has 4
// bytes in the machine's byte order. Kintsugi writes the parameters between an answer and the next
// question, even if it no longer wants the answer. It may write only those that have changed, and
// relies on the program for the others. It only reads the gradients: a program finds there what it
// has written last. The first eight bytes of the page are the id of the question
// whose answer is still wanted. A program whose gradients take long may read it now and then. If it
// is not the id of the current question, newer parameters have made the gradient useless, and the
// program may answer with anything.
//
// If the description has "touches", the memory goes on with a byte for each 16 gradients, the last
// one for those that are left. Kintsugi need not look at 16 gradients whose byte is 0, and takes them
// for +0. So with each answer the byte must be 1 where a gradient may be anything else. This saves
// time if a batch touches few rows of a large table, and the run has the codec sparse.
//
// # Failures
//
// If a worker is killed, its program is killed too (on Linux). If a program ends or violates the protocol, its
// worker ends with an error that contains the last line that the program wrote; the launcher starts
// the worker again. So it is if the program hangs: if an answer about gradients, steps or an evaluation takes longer
// than --hang-after, which by default follows from how long earlier answers took. The program and what it has
// started get a SIGQUIT then, on which they may write where they stand, and two seconds later a SIGKILL.
package program
