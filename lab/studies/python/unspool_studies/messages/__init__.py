"""What is in the messages of five programs, and when coding them pays: the fourth chapter of
Ibtesham's dissertation (University of New Mexico, 2017) with programs of `lab/studies/messages`."""
