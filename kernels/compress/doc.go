// Package compress makes gradients small: codecs, error feedback, and a lossless stage for what they write.
//
// A [Codec] encodes the chunks of a gradient one by one; the payloads are those of [kernels.Encoding], which
// the step of a server reads in place. [Parse] makes a codec from its name, such as "int8" or "topk:0.01+s2".
//
// # Error feedback
//
// What a lossy codec leaves out is not lost: a worker adds it to its next gradient (Seide et al. 2014;
// Karimireddy et al. 2019). [Feedback] keeps this residual in two phases, because a gradient may be
// thrown away after it was encoded: encoding takes the residual and writes a candidate for the next
// one; when the push is counted, the candidate is adopted, and when it is dropped, what was taken comes
// back. So each gradient that was counted reaches the model, at once or later, and what was dropped takes
// nothing with it.
//
// # Lossless stage
//
// The bytes of a whole frame can be packed once more, see [Codec].Pack: s2 takes out runs of zeros at
// the speed of memory; Huffman coding of the exponents makes dense floats a sixth to a third smaller, slowly, which
// pays only on links below about 2 Gbit/s. [Unpack] trusts nothing it reads.
package compress
