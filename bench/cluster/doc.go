// Package cluster measures runs of kintsugi train: what distribution, protection and failures cost,
// and whether runs end with the models they should. Each file answers one question, which stands at
// its beginning together with a baseline and a claim that could be false.
package cluster
