//! Saves and restores in all the ways that there are.

use unspool::gpu::{DeviceSpan, Stream};
use unspool::{Launch, RegionSpec, RestoreTicket, SaveTicket, Wait};
use unspool_cuda::copy;

use super::arrays::Content;
use super::check::same;
use super::{LIMIT, Outcome, Player};

/// What arrays hold that wait for data, and what they are overwritten with afterwards.
const BEFORE: u8 = 0xA5;
const AFTER: u8 = 0xEE;

impl Player<'_> {
    fn wait(&self) -> Wait<'static> {
        Wait::at_most(LIMIT)
    }

    /// A wait that is no stall while the stream has work.
    fn wait_on(&self, lane: usize) -> Wait<'_> {
        Wait { stream: Some(&self.lanes[lane].stream), ..self.wait() }
    }

    /// Saves a new version.
    pub(super) fn save(&mut self) -> Outcome {
        let (version, contents) = (self.next, self.contents());
        self.next += 1;
        let ticket = self.begin_save(version, &contents)?;
        self.fill(ticket, &contents)?;
        self.saved.insert(version, contents);
        self.done.saves += 1;
        Ok(())
    }

    fn contents(&mut self) -> Vec<Content> {
        let count = if self.dice.one_in(3) { 1 + self.dice.below(3) } else { 1 };
        let largest = self.largest / count;
        (0..count).map(|_| Content::draw(&mut self.dice, self.bank, largest)).collect()
    }

    fn begin_save(&mut self, version: i64, contents: &[Content]) -> Outcome<SaveTicket> {
        let specs: Vec<RegionSpec> =
            contents.iter().enumerate().map(|(index, content)| content.spec(index)).collect();
        let launch = [Launch::Held, Launch::Held, Launch::WithHeld, Launch::Alone]
            [self.dice.below(4) as usize];
        let wait = if version % 2 == 0 { self.wait_on(0) } else { self.wait() };
        let mut ticket = self.spool.save(version, specs, &wait)?;
        ticket.set_launch(launch);
        Ok(ticket)
    }

    fn fill(&mut self, mut ticket: SaveTicket, contents: &[Content]) -> Outcome {
        let lane = self.lane();
        if self.dice.one_in(4) && ticket.device_region(0)?.is_some() {
            return self.fill_in_place(ticket, contents, lane);
        }
        for (index, content) in contents.iter().enumerate() {
            // The regions of one checkpoint may come from several streams.
            let lane = if self.dice.one_in(3) { self.lane() } else { lane };
            self.put(&mut ticket, index, content, lane)?;
        }
        Ok(ticket.commit()?)
    }

    /// One region, from the host or from an array of a stream.
    fn put(
        &mut self,
        ticket: &mut SaveTicket,
        index: usize,
        content: &Content,
        lane: usize,
    ) -> Outcome {
        if self.dice.one_in(4) {
            let bytes = content.dense(self.bank);
            return Ok(ticket.fill(index, |to| to.copy_from_slice(&bytes))?);
        }
        let lane = &self.lanes[lane];
        let array = lane.array.span().slice(0, content.extent())?;
        copy::device_to_device(&lane.stream, &array, &content.on_device(self.bank)?)?;
        ticket.put(index, &content.array(&array), &lane.stream)?;
        Ok(copy::fill(&lane.stream, &array, AFTER)?)
    }

    /// All regions, written into the arena's memory by the application.
    fn fill_in_place(
        &mut self,
        mut ticket: SaveTicket,
        contents: &[Content],
        lane: usize,
    ) -> Outcome {
        let stream = &self.lanes[lane].stream;
        ticket.begin(stream)?;
        match self.write_regions(&ticket, contents, stream) {
            Ok(()) => Ok(ticket.commit_on(stream)?),
            Err(error) => ticket.give_up_on(stream).map_err(Into::into).and(Err(error)),
        }
    }

    fn write_regions(&self, ticket: &SaveTicket, contents: &[Content], stream: &Stream) -> Outcome {
        for (index, content) in contents.iter().enumerate() {
            let to = ticket.device_region(index)?.ok_or("a region in another place")?;
            let from = content.on_device(self.bank)?;
            for row in 0..content.rows() {
                let (to, from) = content.row(row, &to, &from)?;
                copy::device_to_device(stream, &to, &from)?;
            }
        }
        Ok(())
    }

    /// Restores a version, in one of the ways that there are.
    pub(super) fn restore(&mut self, version: i64) -> Outcome {
        let contents = self.saved[&version].clone();
        let all: u64 = contents.iter().map(|content| content.extent() + 256).sum();
        if !self.checks.has_room(all) {
            self.done.compared_bytes += self.checks.settle(&self.lanes)?;
        }
        let lane = self.lane();
        let mut ticket = self.spool.restore(version, &self.wait_on(lane))?;
        self.done.restores += 1;
        if self.dice.one_in(4) && ticket.device_region(0)?.is_some() {
            return self.look_in_place(ticket, version, &contents, lane);
        }
        for (index, content) in contents.iter().enumerate() {
            let lane = if self.dice.one_in(3) { self.lane() } else { lane };
            let what = format!("version {version}, region {index}, {content:?}");
            self.get(&mut ticket, index, (content, what), lane)?;
        }
        Ok(ticket.finish()?)
    }

    /// One region, to the host, to an array that is copied on at once, or to one that stays.
    fn get(
        &mut self,
        ticket: &mut RestoreTicket,
        index: usize,
        (content, what): (&Content, String),
        lane: usize,
    ) -> Outcome {
        if self.dice.one_in(4) {
            let (mut seen, expected) = (Ok(()), content.dense(self.bank));
            ticket.read(index, |bytes| seen = same(bytes, &expected, &format!("{what}, read")))?;
            self.done.compared_bytes += expected.len() as u64;
            return seen;
        }
        let lane = &self.lanes[lane];
        let expected = content.scattered(self.bank, BEFORE);
        let result =
            self.checks.add(expected, format!("{what}, on {:#x}", lane.stream.handle()))?;
        let stays = self.dice.one_in(2);
        let array = lane.array.span().slice(0, content.extent())?;
        let to = if stays { &result } else { &array };
        copy::fill(&lane.stream, to, BEFORE)?;
        ticket.get(index, &content.array(to), &lane.stream)?;
        if stays {
            return Ok(());
        }
        copy::device_to_device(&lane.stream, &result, &array)?;
        Ok(copy::fill(&lane.stream, &array, AFTER)?)
    }

    /// All regions, read by the application where they are.
    fn look_in_place(
        &mut self,
        mut ticket: RestoreTicket,
        version: i64,
        contents: &[Content],
        lane: usize,
    ) -> Outcome {
        ticket.begin(&self.lanes[lane].stream)?;
        let looked = self.read_regions(&ticket, version, contents, lane);
        let stream = &self.lanes[lane].stream;
        match looked {
            Ok(()) => Ok(ticket.finish_on(stream)?),
            Err(error) => ticket.give_up_on(stream).map_err(Into::into).and(Err(error)),
        }
    }

    fn read_regions(
        &mut self,
        ticket: &RestoreTicket,
        version: i64,
        contents: &[Content],
        lane: usize,
    ) -> Outcome {
        for (index, content) in contents.iter().enumerate() {
            let from = ticket.device_region(index)?.ok_or("a region in another place")?;
            let what = format!("version {version}, region {index}, {content:?}, in place");
            let to: DeviceSpan = self.checks.add(content.dense(self.bank), what)?;
            copy::device_to_device(&self.lanes[lane].stream, &to, &from)?;
        }
        Ok(())
    }

    /// A save or a restore that is begun and given up with its work under way.
    pub(super) fn give_up(&mut self) -> Outcome {
        self.done.given_up += 1;
        let lane = self.lane();
        if let Some(version) = self.any()
            && self.dice.one_in(2)
        {
            let contents = self.saved[&version].clone();
            let mut ticket = self.spool.restore(version, &self.wait())?;
            let lane = &self.lanes[lane];
            let array = lane.array.span().slice(0, contents[0].extent())?;
            return Ok(ticket.get(0, &contents[0].array(&array), &lane.stream)?);
        }
        let (version, contents) = (self.next, self.contents());
        let mut ticket = self.begin_save(version, &contents)?;
        self.put(&mut ticket, 0, &contents[0], lane)
    }
}
